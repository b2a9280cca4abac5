package pipe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxRecord is the length in bytes of a line above which the input cannot be a list of names.
const maxRecord = 1 << 20

var errTooLong = fmt.Errorf("a name is longer than %d bytes", maxRecord)

// records yields what is between the ends in r, as it comes. It returns when ctx is
// cancelled, although a Read of r may wait for ever.
func records(ctx context.Context, r io.Reader, end byte) iter.Seq2[string, error] {
	type part struct {
		records []string
		err     error
	}
	return func(yield func(string, error) bool) {
		parts := make(chan part) // unbuffered: nothing is read that nobody takes
		go func() {
			defer close(parts)
			splitRecords(r, end, func(records []string, err error) bool {
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

// splitRecords yields the records that end in each Read of r, and what is behind the last end.
func splitRecords(r io.Reader, end byte, yield func([]string, error) bool) {
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

const bytesPrefix = `{"bytes":`

// appendName appends the JSON value of a name.
func appendName(b []byte, name string) []byte {
	var v any = name
	if !utf8.ValidString(name) {
		v = struct {
			Bytes []byte `json:"bytes"`
		}{[]byte(name)}
	}
	text, err := marshal(v)
	if err != nil {
		panic(err) // strings and bytes always have a JSON value
	}
	return append(b, text...)
}

// parseName returns the name that a line stands for. With an error it is the line.
func parseName(line string) (string, error) {
	switch {
	case strings.HasPrefix(line, `"`):
		var name string
		err := json.Unmarshal([]byte(line), &name)
		if err == nil && (!utf8.ValidString(line) || hasLoneSurrogate(line)) {
			err = errors.New("not UTF-8")
		}
		if err != nil {
			return line, fmt.Errorf("a line that begins with a quote must be a JSON string: %w", err)
		}
		return name, nil
	case strings.HasPrefix(line, bytesPrefix):
		var v struct {
			Bytes []byte `json:"bytes"`
		}
		err := json.Unmarshal([]byte(line), &v)
		if err == nil && v.Bytes == nil {
			err = errors.New("no bytes")
		}
		if err != nil {
			return line, fmt.Errorf("a line that begins with %s must be a JSON object: %w", bytesPrefix, err)
		}
		return string(v.Bytes), nil
	}
	return line, nil
}

var (
	surrogatePair = regexp.MustCompile(`\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..`)
	surrogate     = regexp.MustCompile(`\\u[dD][89a-fA-F]`)
)

// hasLoneSurrogate reports whether a JSON string has an escape that stands for no character. Package json silently takes
// another character in its place, and so the name of another file.
func hasLoneSurrogate(line string) bool {
	return strings.Contains(line, `\u`) && surrogate.MatchString(surrogatePair.ReplaceAllString(line, ""))
}

var errNoPath = fmt.Errorf("not the path of a file below root: %w", fs.ErrInvalid)

// checkName returns an error for a name that Options.Files takes for a tree, or that is no path. The others have their own
// path in a failure, where nameOf finds it.
func checkName(name string, isFS bool) error {
	foreign := !isFS && filepath.Separator != '/' && strings.ContainsRune(name, filepath.Separator)
	if foreign || strings.Contains(name, "\x00") {
		return errNoPath
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == "" || element == "." || element == ".." {
			return errNoPath
		}
	}
	return nil
}

// pathPrefix returns what precedes the name in the path of a failure.
func pathPrefix(root string, isFS bool) string {
	const name = "x"
	switch {
	case isFS:
		return strings.TrimSuffix(path.Join(root, name), name)
	case slices.Contains(strings.Split(filepath.ToSlash(root), "/"), ".."): // see fileproc.File.Path
		return strings.TrimRight(root, string(filepath.Separator)) + string(filepath.Separator)
	}
	return strings.TrimSuffix(filepath.Join(root, name), name)
}

// nameOf returns the name of the file that err is a failure of, and why it failed. The reason is nil if err is not about a
// file.
func nameOf(err error, prefix string) (name string, why error) {
	e, ok := err.(*fs.PathError)
	if !ok {
		return "", nil
	}
	name, ok = strings.CutPrefix(e.Path, prefix)
	if !ok {
		return "", nil
	}
	return filepath.ToSlash(name), fmt.Errorf("%s: %w", e.Op, e.Err)
}
