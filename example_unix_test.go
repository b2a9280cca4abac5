//go:build unix

package fileproc_test

import (
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
