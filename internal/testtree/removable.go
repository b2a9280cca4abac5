package testtree

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Removable lets the directory dir of tb.TempDir be removed at the test's end, although a directory in it may not have the
// permissions which that takes. A test that removes permissions calls it, and need not give them back. For root nothing fails
// without it.
func Removable(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() { makeRemovable(dir) })
}

// makeRemovable gives the owner all permissions on each directory of a tree, before the directory is listed. It follows no link.
// What fails is left to the removal, which reports it.
func makeRemovable(dir string) {
	filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(name, 0o700)
		}
		return nil
	})
}
