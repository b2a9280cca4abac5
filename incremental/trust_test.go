package incremental

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// TestCoarseTimes: metadata does not show each change where the change time has no nanoseconds, unless the caller says so.
func TestCoarseTimes(t *testing.T) {
	t.Parallel()
	s := fileproc.Stat{ChangeTime: time.Unix(1e9, 0), Device: 7}
	auto := trust{compare: CompareAuto, root: true}
	auto.others.Store(uint64(7), true)
	require.False(t, auto.of(s, nil))
	require.True(t, (&trust{compare: CompareMetadata, root: true}).of(s, nil))
	s.ChangeTime = time.Unix(1e9, 1)
	require.True(t, auto.of(s, nil))
	auto.others.Store(uint64(7), false)
	require.False(t, auto.of(s, nil))
}

// TestMountBelowRoot: for files on another file system below root, the content decides, although root's file system keeps times well.
func TestMountBelowRoot(t *testing.T) {
	t.Parallel()
	root, file := t.TempDir(), filepath.Join(t.TempDir(), "cache")
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), []byte("x"), 0o644))
	if ok, _ := fsinfo.KeepsTimes(root); !ok {
		t.Skip("the file system of the test's directory is not known to keep times")
	}
	calls, read := 0, 0
	run := func(trusted bool) {
		calls = 0
		opts := fileproc.Options{Workers: 1}
		r, err := begin(root, &Options[string]{File: file}, &opts, func(f *fileproc.File) (string, error) {
			calls++
			return string(f.Data()), nil
		})
		require.NoError(t, err)
		for s := range fileproc.Walk(t.Context(), root, fileproc.Options{Stat: true}) {
			stat, err := s.Stat()
			require.NoError(t, err)
			r.trust.others.Store(stat.Device, trusted)
		}
		got, err := fileproc.Process(t.Context(), root, opts, r.fn())
		require.NoError(t, r.end(t.Context(), err))
		require.Len(t, got, 1)
		read = int(r.report.Bytes)
		require.EqualValues(t, 1, r.report.Processed+r.report.Unchanged)
		require.EqualValues(t, calls, r.report.Processed)
	}
	time.Sleep(Settled + 20*time.Millisecond)
	run(false)
	require.Equal(t, 1, calls)
	run(false)
	require.Equal(t, 0, calls)
	require.Equal(t, 1, read)
	run(true) // what was kept of the content says nothing about the metadata
	require.Equal(t, 1, calls)
	run(true)
	require.Equal(t, 0, calls)
	require.Equal(t, 0, read)
	run(false) // nor the other way around
	require.Equal(t, 1, calls)
}

// TestTrustNeedsALook: a run trusts a device only once it has opened a file there and so looked at its file system. The answer then
// holds for the other files of that device, and for no other device.
func TestTrustNeedsALook(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(root, "a"), nil, 0o644))
	if ok, _ := fsinfo.KeepsTimes(root); !ok {
		t.Skip("the file system of the test's directory is not known to keep times")
	}
	_, err := fileproc.Process(t.Context(), root, fileproc.Options{ReadSize: fileproc.NoRead, Stat: true}, func(f *fileproc.File) (bool, error) {
		s, err := f.Stat()
		require.NoError(t, err)
		s.ChangeTime = time.Unix(1e9, 1)
		known, unknown := trust{compare: CompareAuto, root: true}, trust{compare: CompareAuto, root: true}
		require.True(t, known.of(s, f))
		require.NoError(t, os.Remove(filepath.Join(root, "a")))
		require.False(t, unknown.of(s, f), "it cannot be opened")
		require.True(t, known.of(s, f), "it need not be")
		s.Device++
		require.False(t, known.of(s, f), "of this device nothing is known")
		require.False(t, (&trust{compare: CompareAuto}).of(s, nil))
		s.Device--
		require.NoError(t, os.WriteFile(filepath.Join(root, "a"), nil, 0o644))
		require.True(t, unknown.of(s, f), "that said nothing about the device")
		s.Device += 2
		require.True(t, unknown.of(s, f))
		require.NoError(t, os.Remove(filepath.Join(root, "a")))
		require.True(t, unknown.of(s, f))
		s.Device -= 2
		require.True(t, unknown.of(s, f), "the answer for the device before still holds")
		s.Device++
		require.False(t, unknown.of(s, f))
		return true, nil
	})
	require.NoError(t, err)
}
