//go:build unix

package fileproc_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing/fstest"

	"github.com/fileproc/fileproc"
)

// The targets of links have the links' paths. Each directory is entered once. Links
// lead out of root only with SymlinksOutside.
func ExampleSymlinks() {
	tmp, err := os.MkdirTemp("", "fileproc-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte(to)} }
	if err := os.CopyFS(tmp, fstest.MapFS{
		"site/posts/first.md": {Data: []byte("# First\n")},
		"site/index.md":       link("posts/first.md"), // a file
		"site/posts/up":       link(".."),             // a loop
		"site/theme":          link("../theme"),       // out of root
		"theme/style.css":     {},
	}); err != nil {
		fmt.Println(err)
		return
	}

	for _, opts := range []fileproc.Options{
		{}, // SymlinksSkip
		{Symlinks: fileproc.SymlinksFiles},
		{Symlinks: fileproc.SymlinksFollow},
		{Symlinks: fileproc.SymlinksFollow, SymlinksOutside: true},
	} {
		opts.Ordered = true
		fmt.Println(fileproc.Process(context.Background(), filepath.Join(tmp, "site"), opts, func(f *fileproc.File) (string, error) {
			if target := f.LinkTarget(); target != "" {
				return f.Rel() + " -> " + filepath.Base(target), nil
			}
			return f.Rel(), nil
		}))
	}
	// Output:
	// [posts/first.md] <nil>
	// [index.md -> first.md posts/first.md] <nil>
	// [index.md -> first.md posts/first.md] <nil>
	// [index.md -> first.md posts/first.md theme/style.css -> style.css] <nil>
}

// A formatter replaces the files that it changes. They are on the disk when Process returns.
func ExampleFile_Replace() {
	dir, err := os.MkdirTemp("", "fileproc-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, fstest.MapFS{"a.md": {Data: []byte("# a\n")}, "b.md": {Data: []byte("# B\n")}}); err != nil {
		panic(err)
	}

	changed, err := fileproc.Process(context.Background(), dir, fileproc.Options{Ordered: true, Durable: true}, func(f *fileproc.File) (string, error) {
		out := bytes.ToUpper(f.Data())
		if bytes.Equal(out, f.Data()) {
			return "", fileproc.ErrSkip
		}
		return f.Rel(), f.Replace(out)
	})
	fmt.Println(changed, err)
	// Output: [a.md] <nil>
}
