//go:build race

package fileproc_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"testing"

	"github.com/fileproc/fileproc"
	"github.com/stretchr/testify/require"
)

const raceDetector = true

func TestInvariant7BorrowedBufferIsPoisoned(t *testing.T) {
	const size = 400
	for _, read := range []int{0, 100} {
		for _, files := range []int{2, 500} {
			t.Run(fmt.Sprintf("ReadSize=%d/files=%d", read, files), func(t *testing.T) {
				dir := t.TempDir()
				for i := range files {
					content := bytes.Repeat([]byte{byte(i%100) + 1}, size)
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), content, 0o644))
				}
				for _, p := range places(dir) {
					var kept []byte
					var was byte
					stillThere := func() bool {
						// An unmapped buffer counts as a poisoned one.
						defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
						defer func() { _ = recover() }()
						return kept != nil && bytes.IndexByte(kept, was) >= 0
					}
					// With one worker, the last file's buffer is checked after its fn has returned, so nothing races.
					opts := fileproc.Options{Workers: 1, ReadSize: read, FS: p.fsys}
					_, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (int, error) {
						if was != f.Data()[0] && stillThere() {
							return 0, fmt.Errorf("%s: the previous file's bytes can still be read", f.Name())
						}
						kept, was = f.Data(), f.Data()[0]
						return 0, nil
					})
					require.NoError(t, err)
					require.False(t, stillThere(), "the last file's bytes can still be read")
				}
			})
		}
	}
}
