//go:build unix

package fileproc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/fileproc/fileproc"
)

// What links lead to is found under the links' own paths, a directory once. Out
// of root they lead only with SymlinksOutside.
func ExampleSymlinks() {
	tmp, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(tmp)
	root := filepath.Join(tmp, "site")
	if err := errors.Join(
		os.MkdirAll(filepath.Join(root, "posts"), 0o777),
		os.WriteFile(filepath.Join(root, "posts", "first.md"), []byte("# First\n"), 0o666),
		os.Mkdir(filepath.Join(tmp, "theme"), 0o777),
		os.WriteFile(filepath.Join(tmp, "theme", "style.css"), nil, 0o666),
		os.Symlink("posts/first.md", filepath.Join(root, "index.md")), // a file
		os.Symlink("..", filepath.Join(root, "posts", "up")),          // a loop
		os.Symlink("../theme", filepath.Join(root, "theme")),          // out of root
	); err != nil {
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
		fmt.Println(fileproc.Process(context.Background(), root, opts, rel))
	}
	// Output:
	// [posts/first.md] <nil>
	// [index.md posts/first.md] <nil>
	// [index.md posts/first.md] <nil>
	// [index.md posts/first.md theme/style.css] <nil>
}
