package testtree

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Removable makes sure that the directory dir of tb.TempDir can be removed at the test's end, although directories in it may
// lack the permissions for that. A test that removes permissions calls Removable, and need not restore them. Root does not need
// Removable.
func Removable(tb testing.TB, dir string) {
	tb.Helper()
	tb.Cleanup(func() { makeRemovable(dir) })
}

// makeRemovable gives the owner all permissions on each directory of a tree, before it lists the directory. It follows no link.
// It ignores errors: the removal reports what it cannot remove.
func makeRemovable(dir string) {
	filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(name, 0o700)
		}
		return nil
	})
}
