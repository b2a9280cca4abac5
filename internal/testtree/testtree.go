// Package testtree makes directory trees for tests from lists of strings, and reads them back the slow, obvious way.
//
// It works on every platform. If a platform or a file system cannot represent an entry, the package reports that and does not
// fail the test, which then leaves the case out of its table.
//
// Set and NotInColdMode are for tests of package fileproc that set variables of package knobs.
package testtree

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// errUnsupported says that the platform cannot represent an entry. This error does not fail a test.
var errUnsupported = errors.New("not supported here")

// Make makes a tree in the existing directory dir. Paths are slash-separated, and missing parents are made. A spec is one of
//
//	"a/b.txt=content"  a regular file; everything after the first "=" is content
//	"a/b.txt"          an empty regular file
//	"d/"               a directory
//	"l -> target"      a symbolic link; the target is used as it is and need not exist
//	"p|"               a FIFO
//	"s@"               a Unix-domain socket
//
// Make logs the reason and returns false if the platform cannot represent an entry, because it forbids or changes the name or
// does not support the kind. The tree is then incomplete. Any other failure ends the test.
func Make(tb testing.TB, dir string, specs ...string) (ok bool) {
	tb.Helper()
	made := map[string]bool{} // the directories that exist, so that not each file takes a MkdirAll
	for _, spec := range specs {
		err := makeOne(dir, spec, made)
		if errors.Is(err, errUnsupported) {
			tb.Logf("testtree: left out: %.80q: %v", spec, err)
			return false
		}
		if err != nil {
			tb.Fatalf("testtree: %.80q: %v", spec, err)
		}
	}
	return true
}

func makeOne(dir, spec string, made map[string]bool) error {
	name, content, isFile := strings.Cut(spec, "=")
	var target string
	isLink := false
	if !isFile {
		name, target, isLink = strings.Cut(spec, " -> ")
	}
	isDir := !isFile && strings.HasSuffix(name, "/")
	isFIFO := !isFile && strings.HasSuffix(name, "|")
	isSocket := !isFile && strings.HasSuffix(name, "@")
	if isDir || isFIFO || isSocket {
		name = name[:len(name)-1]
	}
	parent := dir + "/" + path.Dir(name)
	full := dir + "/" + name // not filepath.Join, which takes a backslash in a name for a separator on Windows

	err := mkdirAll(parent, made)
	if err == nil {
		switch {
		case isDir:
			err = mkdirAll(full, made)
		case isLink:
			// Some platforms have no links, and some require a privilege for them.
			if e := symlink(target, full); e != nil {
				return fmt.Errorf("%w: %w", errUnsupported, e)
			}
		case isFIFO:
			if e := mkfifo(full); e != nil {
				return fmt.Errorf("%w: %w", errUnsupported, e)
			}
		case isSocket:
			if e := mksocket(full); e != nil {
				return fmt.Errorf("%w: %w", errUnsupported, e)
			}
		default:
			err = os.WriteFile(full, []byte(content), 0o644)
		}
	}
	if !isUnportable(name) {
		return err
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsupported, err)
	}
	return checkName(parent, path.Base(name))
}

// Symlink makes a symbolic link. Where it cannot, it skips the test, which is about the link: Windows demands a privilege for
// links, a WASI host refuses absolute ones, and Plan 9 and some file systems have none.
func Symlink(tb testing.TB, target, name string) {
	tb.Helper()
	if err := symlink(target, name); err != nil {
		tb.Skip("this symbolic link cannot be made here: ", err)
	}
}

// symlink is os.Symlink, but fails if there is no link afterwards: wine's CreateSymbolicLink makes none and reports success.
func symlink(target, name string) error {
	if err := os.Symlink(target, name); err != nil {
		return err
	}
	i, err := os.Lstat(name)
	if err == nil && i.Mode().Type() != fs.ModeSymlink {
		err = fmt.Errorf("its type is %v", i.Mode().Type())
	}
	if err != nil {
		return fmt.Errorf("no link was made: %w", err)
	}
	return nil
}

func mkdirAll(dir string, made map[string]bool) error {
	if made[dir] {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	made[dir] = true
	return nil
}

// isUnportable reports whether some platform forbids or changes the name.
func isUnportable(name string) bool {
	return !utf8.ValidString(name) || len(path.Base(name)) > 128 ||
		strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r >= 0x7f || strings.ContainsRune(`\:*?"<>|`, r) }) ||
		strings.HasSuffix(name, ".") || strings.HasSuffix(name, " ")
}

// checkName looks for the name in its directory's listing. Some file systems normalise names, and some platforms
// replace bytes that are not UTF-8, both without an error.
func checkName(dir, base string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == base {
			return nil
		}
	}
	return fmt.Errorf("%w: the name was changed", errUnsupported)
}

// Numbered returns n specs of files called prefix%06d.md with contents that differ.
func Numbered(prefix string, n int) []string {
	specs := make([]string, n)
	for i := range specs {
		specs[i] = fmt.Sprintf("%s%06d.md=content of %s%d\n", prefix, i, prefix, i)
	}
	return specs
}

// Content returns n bytes in which no two places look alike, so a comparison finds lost, repeated or moved bytes.
func Content(n int) string {
	b := make([]byte, 0, n+16)
	for len(b) < n {
		b = strconv.AppendInt(b, int64(len(b)), 36)
		b = append(b, '\n')
	}
	return string(b[:n])
}

// Deep makes a chain of depth directories in dir, all with the given name, and puts the files into each of them. It
// descends by handle, so the chain may be far longer than the longest path that the system accepts.
//
// Deep logs the reason and returns false if the platform cannot descend that far.
func Deep(tb testing.TB, dir string, depth int, name string, files ...string) (ok bool) {
	tb.Helper()
	if n := depth * (len(name) + 1); n > 4000 && IsWine() {
		tb.Logf("testtree: left out: %d bytes of path: wine's paths are those of the Unix below it, of at most 4096 bytes", n)
		return false
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatalf("testtree: %v", err)
	}
	for level := range depth {
		if err := descend(&root, name, files); err != nil {
			root.Close()
			tb.Logf("testtree: left out: %d levels of %d bytes: level %d: %v", depth, len(name), level+1, err)
			return false
		}
	}
	root.Close()
	return true
}

// descend makes one level of Deep and moves root into it.
func descend(root **os.Root, name string, files []string) error {
	if err := (*root).Mkdir(name, 0o755); err != nil {
		return err
	}
	next, err := (*root).OpenRoot(name)
	if err != nil {
		return err
	}
	(*root).Close()
	*root = next
	for _, spec := range files {
		base, content, _ := strings.Cut(spec, "=")
		if err := next.WriteFile(base, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Snapshot returns the content of every regular file under dir, by its slash-separated path relative to dir. Tests use it as
// their reference. It uses filepath.WalkDir and os.Open, and descends by handle where paths are too long for these.
func Snapshot(tb testing.TB, dir string) map[string][]byte {
	tb.Helper()
	var files map[string][]byte
	visit(tb, dir, func() { files = map[string][]byte{} }, func(rel string, d fs.DirEntry, open func() (*os.File, error)) error {
		if !d.Type().IsRegular() {
			return nil
		}
		f, err := open()
		if err != nil {
			return err
		}
		defer f.Close()
		files[rel], err = io.ReadAll(f)
		return err
	})
	return files
}

// List returns the type of every entry under dir, by its slash-separated path relative to dir.
func List(tb testing.TB, dir string) map[string]fs.FileMode {
	tb.Helper()
	var entries map[string]fs.FileMode
	visit(tb, dir, func() { entries = map[string]fs.FileMode{} }, func(rel string, d fs.DirEntry, _ func() (*os.File, error)) error {
		entries[rel] = d.Type()
		return nil
	})
	return entries
}

type visitFunc func(rel string, d fs.DirEntry, open func() (*os.File, error)) error

// visit calls start, and then fn for every entry under dir, which it reaches by path. If that fails, visit calls start again and
// descends by handle.
func visit(tb testing.TB, dir string, start func(), fn visitFunc) {
	tb.Helper()
	start()
	byPath := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return fn(filepath.ToSlash(rel), d, func() (*os.File, error) { return os.Open(name) })
	})
	if byPath == nil {
		return
	}
	start()
	root, err := os.OpenRoot(dir)
	if err != nil {
		tb.Fatalf("testtree: %v", err)
	}
	if byHandle := visitRoot(root, "", fn); byHandle != nil {
		tb.Fatalf("testtree: by path: %.300v; by handle: %.300v", byPath, byHandle)
	}
}

// visitRoot calls fn for every entry under root, and closes root.
func visitRoot(root *os.Root, prefix string, fn visitFunc) error {
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	d.Close()
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := fn(prefix+e.Name(), e, func() (*os.File, error) { return root.Open(e.Name()) }); err != nil {
			return err
		}
		if !e.IsDir() {
			continue
		}
		sub, err := root.OpenRoot(e.Name())
		if err != nil {
			return err
		}
		if err := visitRoot(sub, prefix+e.Name()+"/", fn); err != nil {
			return err
		}
	}
	return nil
}
