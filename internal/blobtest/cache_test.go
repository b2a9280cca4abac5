package blobtest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"
	"time"

	"github.com/fileproc/fileproc/cache"
	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"
	"gocloud.dev/gcerrors"
)

// store is a bucket as the store of a cache, as in the docs.
type store struct{ *blob.Bucket }

func (s store) WriteFile(name string, data []byte) (fs.FileInfo, error) {
	return nil, s.WriteAll(context.Background(), name, data, nil)
}

func (s store) Remove(name string) error {
	err := s.Delete(context.Background(), name)
	if gcerrors.Code(err) == gcerrors.NotFound {
		err = errors.Join(fs.ErrNotExist, err)
	}
	return err
}

// counting is a bucket that counts what is opened.
type counting struct {
	*blob.Bucket
	opens int
}

func (c *counting) Open(name string) (fs.File, error) {
	c.opens++
	return c.Bucket.Open(name)
}

// TestCacheOfABucket: objects are cached and compared by size and time, warmed, saved in a
// snapshot, and written.
func TestCacheOfABucket(t *testing.T) {
	bucket := memblob.OpenBucket(nil)
	defer bucket.Close()
	for i := range 20 {
		require.NoError(t, bucket.WriteAll(t.Context(), fmt.Sprintf("d%d/f%d", i%2, i), []byte(fmt.Sprint(i)), nil))
	}
	files, err := cache.New(bucket, cache.Options{Store: store{bucket}})
	require.NoError(t, err)
	read := func(files *cache.FS, name, want string) {
		t.Helper()
		data, err := files.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	read(files, "d1/f7", "7")
	require.Zero(t, files.Stats().Files.Entries, "it changed just now")
	time.Sleep(2100 * time.Millisecond)
	for range 3 {
		read(files, "d1/f7", "7")
	}
	s := files.Stats().Files
	require.EqualValues(t, 2, s.Hits)
	info, err := files.Stat("d1/f7")
	require.NoError(t, err)
	attributes, err := bucket.Attributes(t.Context(), "d1/f7")
	require.NoError(t, err)
	require.EqualValues(t, 1, info.Size())
	require.True(t, attributes.ModTime.Equal(info.ModTime()))
	entries, err := files.ReadDir("d1")
	require.NoError(t, err)
	require.Len(t, entries, 10)

	r, err := files.Warm(t.Context(), cache.WarmOptions{Include: []string{"d1/*"}})
	require.NoError(t, err)
	require.EqualValues(t, 9, r.Warmed)
	require.EqualValues(t, 1, r.Cached)
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	require.NoError(t, files.SaveSnapshot(snapshot))

	require.NoError(t, bucket.WriteAll(t.Context(), "d1/f7", []byte("beneath"), nil))
	read(files, "d1/f7", "beneath")
	require.NoError(t, files.WriteFile("d1/new", []byte("written")))
	data, err := bucket.ReadAll(t.Context(), "d1/new")
	require.NoError(t, err)
	require.Equal(t, "written", string(data))
	read(files, "d1/new", "written")
	require.NoError(t, files.Remove("d1/new"))
	_, err = files.ReadFile("d1/new")
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, files.Remove("d1/new"), fs.ErrNotExist)

	source := &counting{Bucket: bucket}
	next, err := cache.New(source, cache.Options{Store: store{bucket}, Write: cache.WriteBack, FlushInterval: cache.Forever, Trust: cache.Forever})
	require.NoError(t, err)
	n, err := next.LoadSnapshot(snapshot)
	require.NoError(t, err)
	require.Equal(t, 10, n)
	read(next, "d1/f7", "beneath")
	read(next, "d1/f9", "9")
	opens := source.opens
	for range 5 {
		read(next, "d1/f9", "9")
	}
	require.Equal(t, opens, source.opens, "trusted, after one comparison")
	require.NoError(t, next.WriteFile("d1/f9", []byte("dirty")))
	require.NoError(t, next.Remove("d1/f1"))
	read(next, "d1/f9", "dirty")
	exists, err := bucket.Exists(t.Context(), "d1/f1")
	require.NoError(t, err)
	require.True(t, exists)
	require.NoError(t, next.Close())
	exists, err = bucket.Exists(t.Context(), "d1/f1")
	require.NoError(t, err)
	require.False(t, exists)
	data, err = bucket.ReadAll(t.Context(), "d1/f9")
	require.NoError(t, err)
	require.Equal(t, "dirty", string(data))
}
