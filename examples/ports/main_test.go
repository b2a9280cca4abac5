//go:build !js && !wasip1

package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

func set(names ...string) map[string]bool {
	all := map[string]bool{}
	for _, n := range names {
		all[n] = true
	}
	return all
}

func TestDrop(t *testing.T) {
	const src = `package p

import (
	"fmt"
	// for f
	"io"
	y "example.com/x/v3"
	"example.com/z/v2"
)

import "os"

// T goes.
type T struct{ io.Reader }

// M goes.
func (t *T) M() { os.Exit(1) } // and this

func (t U) M() {}

// A comment of its own stays.

// f goes.
// All of it.
func f() {
	// also this
	y.F()
}

var v, w = 1, 2

const (
	a = 1
	b = z.B
)

type U struct{}

var last = fmt.Sprint()`
	const left = `package p

import (
	"example.com/z/v2"
)




func (t U) M() {}

// A comment of its own stays.


var v, w = 1, 2

const (
	a = 1
	b = z.B
)

type U struct{}

`
	names := set("T", "T.M", "f", "last", "v", "a", "none")
	got, lines, err := drop([]byte(src), names)
	require.NoError(t, err)
	require.Equal(t, left, string(got))
	require.Equal(t, set("v", "a", "none"), names, "declared with others, or nowhere")
	require.Equal(t, bytes.Count([]byte(src), []byte("\n"))-bytes.Count(got, []byte("\n")), lines)

	got, lines, err = drop([]byte(src), set("g"))
	require.NoError(t, err)
	require.Zero(t, lines)
	require.Equal(t, src, string(got))
	_, _, err = drop([]byte("package"), names)
	require.Error(t, err)
}

// A declaration of the list that the module does not have is an error with its name. Files that are not built are left alone.
func TestDropAll(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":      "//go:build ignore\n\npackage p\n\nfunc f() {}\n",
		"b.go":      "package p\n\nfunc f() {}\n\nfunc g() {}\n",
		"a_test.go": "package p\n\nfunc h() {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666))
	}
	lines, err := dropAll(dir, []string{"f"})
	require.NoError(t, err)
	require.Equal(t, 1, lines)
	text, err := os.ReadFile(filepath.Join(dir, "b.go"))
	require.NoError(t, err)
	require.Equal(t, "package p\n\n\nfunc g() {}\n", string(text))
	_, err = dropAll(dir, []string{"g", "h", "T.m"})
	require.EqualError(t, err, "the package has no declaration of T.m, h alone")
}

// fake offers testdata/fake to the go command as a module, and what the module cache has.
func fake(t *testing.T) {
	const module, version = "example.com/fake", "v1.0.0"
	proxy := filepath.Join(t.TempDir(), module, "@v")
	require.NoError(t, os.MkdirAll(proxy, 0o777))
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, name := range []string{"go.mod", "fake.go", "fake_test.go"} {
		text := []byte("module " + module + "\n\ngo 1.20\n") // a file of that name would be one more module here
		if name != "go.mod" {
			var err error
			text, err = os.ReadFile(filepath.Join("testdata", "fake", name))
			require.NoError(t, err)
		}
		f, err := w.Create(module + "@" + version + "/" + name)
		require.NoError(t, err)
		_, err = f.Write(text)
		require.NoError(t, err)
		if name == "go.mod" {
			require.NoError(t, os.WriteFile(filepath.Join(proxy, version+".mod"), text, 0o666))
		}
	}
	require.NoError(t, w.Close())
	require.NoError(t, os.WriteFile(filepath.Join(proxy, version+".zip"), archive.Bytes(), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(proxy, version+".info"), []byte(`{"Version": "`+version+`"}`), 0o666))
	cache, err := moduleCache("")
	require.NoError(t, err)
	url := func(dir string) string { return "file://" + filepath.ToSlash(dir) }
	t.Setenv("GOPROXY", url(filepath.Dir(filepath.Dir(filepath.Dir(proxy))))+","+url(filepath.Join(cache, "cache", "download")))
	t.Setenv("GOSUMDB", "off")
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Cleanup(func() {
		_, err := command(".", "go", "clean", "-modcache") // its directories are read-only
		require.NoError(t, err)
	})
}

// TestPort builds both sides of a module, runs its tests, and finds out whether they do the same.
func TestPort(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and tests two programs")
	}
	if runtime.GOOS == "windows" {
		t.Skip("a path with a drive is no URL of a proxy as it is")
	}
	fake(t)
	p := port{name: "fake", ours: filepath.Join("testdata", "ours"), module: "example.com/fake", version: "v1.0.0", command: ".", dropped: []string{"list"}}
	work := t.TempDir()
	s, lines, err := p.build(filepath.Join(work, "fake"))
	require.NoError(t, err)
	require.Equal(t, [2]int{14, 18}, lines)
	require.NoError(t, p.test(s))

	require.NoError(t, run{args: "."}.compare("fake", s, "testdata", work))
	require.NoError(t, run{args: ".", rewrites: true}.compare("fake", s, "testdata", work))
	require.NoError(t, run{args: "."}.compare("fake", s, t.TempDir(), work), "both fail in the same way")
	require.ErrorContains(t, run{args: "-odd ."}.compare("fake", s, "testdata", work), `line 1 was "fake/fake.go\n", and with fileproc the rest is ["odd fake/fake.go\n"`)
	require.NoDirExists(t, filepath.Join(work, "a"), "copies are removed")

	p.dropped = append(p.dropped, "none")
	_, _, err = p.build(filepath.Join(work, "again"))
	require.EqualError(t, err, "the package has no declaration of none alone")
}

func TestFill(t *testing.T) {
	page := "a\n<!-- report: ports -->\n\n| head |\n| --- |\n\nnone\n\n<!-- end -->\nb\n"
	for _, step := range []struct{ row, want string }{
		{"| x | goroot | 1 |", "| x | goroot | 1 |\n\nnow"},
		{"| x | tickets | 2 |", "| x | goroot | 1 |\n| x | tickets | 2 |\n\nnow"},
		{"| x | goroot | 3 |", "| x | goroot | 3 |\n| x | tickets | 2 |\n\nnow"},
	} {
		filled, err := fill([]byte(page), step.row, "now")
		require.NoError(t, err)
		page = string(filled)
		require.Equal(t, "a\n<!-- report: ports -->\n\n| head |\n| --- |\n"+step.want+"\n\n<!-- end -->\nb\n", page)
	}
	_, err := fill([]byte("a\n"), "", "")
	require.Error(t, err)
}
