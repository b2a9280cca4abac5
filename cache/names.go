package cache

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
)

// maxListedName is the length in bytes above which ReadNames refuses a name.
const maxListedName = 1 << 20

// WriteNames writes a list of names, each with a NUL byte at its end, which names may
// not have: the form of find -print0, xargs -0 and git ls-files -z.
func WriteNames(w io.Writer, names []string) error {
	b := bufio.NewWriter(w)
	for _, name := range names {
		if name == "" || strings.IndexByte(name, 0) >= 0 || len(name) > maxListedName {
			return fmt.Errorf("cache: %.100q cannot be in a list of names", name)
		}
		b.WriteString(name) // Flush returns the error
		b.WriteByte(0)
	}
	return b.Flush()
}

// ReadNames reads what WriteNames has written. If the last name has no NUL byte at its
// end, the list was cut off, and the error is io.ErrUnexpectedEOF.
func ReadNames(r io.Reader) ([]string, error) {
	var names []string
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxListedName+1)
	s.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		if atEOF && len(data) > 0 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		return 0, nil, nil
	})
	for s.Scan() {
		if len(s.Bytes()) == 0 {
			return nil, fmt.Errorf("cache: name %d of the list is empty", len(names)+1)
		}
		names = append(names, s.Text())
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("cache: list of names: %w", err)
	}
	return names, nil
}
