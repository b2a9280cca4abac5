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
	// No two files have a text in common, since the memory may have the bytes of a file that is read ahead by now.
	text := func(i int) []byte { return fmt.Appendf(nil, "%03d|", i) }
	const repeats = 100
	for _, read := range []int{0, 100} {
		for _, files := range []int{2, 500} {
			t.Run(fmt.Sprintf("ReadSize=%d/files=%d", read, files), func(t *testing.T) {
				dir := t.TempDir()
				for i := range files {
					require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), bytes.Repeat(text(i), repeats), 0o644))
				}
				for _, p := range places(dir) {
					var kept, was []byte
					stillThere := func() bool {
						// An unmapped buffer counts as a poisoned one.
						defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
						defer func() { _ = recover() }()
						return kept != nil && bytes.Contains(kept, was)
					}
					// With one worker, the last file's buffer is checked after its fn has returned, so nothing races.
					opts := fileproc.Options{Workers: 1, ReadSize: read, FS: p.fsys}
					_, err := fileproc.Process(t.Context(), p.root, opts, func(f *fileproc.File) (int, error) {
						there := stillThere()
						kept, was = f.Data(), bytes.Clone(f.Data()[:len(text(0))])
						if there {
							return 0, fmt.Errorf("%s: the previous file's bytes can still be read", f.Name())
						}
						return 0, nil
					})
					require.NoError(t, err)
					require.False(t, stillThere(), "the last file's bytes can still be read")
				}
			})
		}
	}
}
