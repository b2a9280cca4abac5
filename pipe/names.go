package pipe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/names"
)

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

// parseName returns the name that a line stands for. With an error, it returns the line.
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

// checkName returns an error for a name that Options.Files takes for a tree, or that is no path. A failure of any other name
// has it in its path, where nameOf finds it.
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
	case names.HasDotDot(root): // see fileproc.File.Path
		return strings.TrimRightFunc(root, func(r rune) bool { return r == '/' || r == filepath.Separator }) + string(filepath.Separator)
	}
	return strings.TrimSuffix(filepath.Join(root, name), name)
}

// nameOf returns the name of the file that has failed with err, and the reason. The reason is nil if err is not about a
// file.
func nameOf(err error, prefix string, isFS bool) (name string, why error) {
	e, ok := err.(*fileproc.Failure)
	if !ok {
		return "", nil
	}
	name, ok = strings.CutPrefix(e.Path, prefix)
	if !ok {
		return "", nil
	}
	if !isFS { // in an fs.FS, a backslash is a character like any other
		name = filepath.ToSlash(name)
	}
	return name, fmt.Errorf("%s: %w", e.Op, e.Err)
}
