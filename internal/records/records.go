// Package records reads lists of names: one a line, or each with a NUL byte at its end.
package records

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// maxRecord bounds the length in bytes of a name: input with a longer one cannot be a list of names.
const maxRecord = 1 << 20

var errTooLong = fmt.Errorf("a name is longer than %d bytes", maxRecord)

// All yields the names in r as they come. Each ends with the byte end, except that the
// last one need not. All leaves out empty lines. It returns when ctx is cancelled, although
// a Read of r may wait for ever. After an error it yields nothing more, and it does not
// yield a name that the error has cut off.
func All(ctx context.Context, r io.Reader, end byte) iter.Seq2[string, error] {
	type part struct {
		records []string
		err     error
	}
	return func(yield func(string, error) bool) {
		parts := make(chan part) // unbuffered: nothing is read that nobody takes
		go func() {
			defer close(parts)
			split(r, end, func(records []string, err error) bool {
				select {
				case parts <- part{records, err}:
					return err == nil
				case <-ctx.Done():
					return false
				}
			})
		}()
		for {
			select {
			case <-ctx.Done():
				return
			case p, ok := <-parts:
				if !ok {
					return
				}
				for _, record := range p.records {
					if !yield(record, nil) {
						return
					}
				}
				if p.err != nil && !yield("", p.err) {
					return
				}
			}
		}
	}
}

// List is All for a list that an editor may have written: if names are lines, it leaves out a
// byte order mark before the first line and a carriage return at the end of each.
func List(ctx context.Context, r io.Reader, end byte) iter.Seq2[string, error] {
	if end != '\n' {
		return All(ctx, r, end)
	}
	return func(yield func(string, error) bool) {
		mark := "\ufeff"
		for name, err := range All(ctx, r, end) {
			name = strings.TrimSuffix(strings.TrimPrefix(name, mark), "\r")
			if mark = ""; (name != "" || err != nil) && !yield(name, err) {
				return
			}
		}
	}
}

// split yields, after each Read of r, the records that end in it, and at the end of r what follows the last end.
func split(r io.Reader, end byte, yield func([]string, error) bool) {
	var rest []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		rest = append(rest, buf[:n]...)
		var records []string
		data := rest
		for i := bytes.IndexByte(data, end); i >= 0; i = bytes.IndexByte(data, end) {
			records = appendRecord(records, data[:i], end)
			data = data[i+1:]
		}
		rest = append(rest[:0], data...)
		switch {
		case err == io.EOF:
			if len(rest) > 0 {
				records = appendRecord(records, rest, end)
			}
			yield(records, nil)
			return
		case err == nil && len(rest) > maxRecord:
			err = errTooLong
		}
		if !yield(records, err) || err != nil {
			return
		}
	}
}

func appendRecord(records []string, record []byte, end byte) []string {
	if end == '\n' && runtime.GOOS == "windows" {
		record = bytes.TrimSuffix(record, []byte("\r"))
	}
	if end == '\n' && len(record) == 0 {
		return records
	}
	return append(records, string(record))
}

// Split returns the directory to open for a name, empty for the working directory, and
// the rest, which is slash-separated: "/etc/x" is etc/x in the file system's root, "../x"
// is x in the directory above. An empty rest stands for the directory itself.
func Split(name string) (dir, rel string) {
	if name == "" || name == "." {
		return "", "." // which names no file either
	}
	name = filepath.ToSlash(name)
	volume := filepath.VolumeName(name)
	if rest := name[len(volume):]; strings.HasPrefix(rest, "/") {
		return filepath.FromSlash(volume + "/"), clean(rest)
	}
	rel = clean(name)
	for strings.HasPrefix(rel, "../") {
		dir, rel = dir+"../", rel[len("../"):]
	}
	return filepath.FromSlash(strings.TrimSuffix(dir, "/")), rel
}

// clean removes the elements of a path that mean nothing, and keeps a slash at the end.
func clean(name string) string {
	elements := strings.Split(name, "/")
	last := elements[len(elements)-1]
	elements = slices.DeleteFunc(elements, func(e string) bool { return e == "" || e == "." })
	if last == "" || last == "." {
		elements = append(elements, "")
	}
	return strings.Join(elements, "/")
}
