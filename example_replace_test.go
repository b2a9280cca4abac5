//go:build !plan9 && !wasip1

package fileproc_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing/fstest"

	"github.com/fileproc/fileproc"
)

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
