package cachefile

import (
	"fmt"
	"os"
	"testing"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// TestFormat: testdata/format-3.cache has a snapshot, a frame of records and one of a tombstone. It is read as what it was
// written for, and written byte by byte. A change of the format has another number, and another file.
func TestFormat(t *testing.T) {
	require.Equal(t, 3, format)
	const ns, file = 1_700_000_000_000_000_000, "testdata/format-3.cache"
	written, err := os.ReadFile(file)
	if err != nil {
		t.Skip("the tests run without their source: ", err)
	}
	snapshot := records(0, 4)
	for i, id := range []Identity{
		{Identity: fsinfo.Identity{Size: 1 << 33, ModTime: ns, ChangeTime: ns, Inode: 1 << 40, Mode: 1<<27 | 0o777}},
		{Identity: fsinfo.Identity{Size: 1, ModTime: ns, ChangeTime: ns + 1, BirthTime: ns, Inode: 2, Mode: 0o600}},
		{Identity: fsinfo.Identity{Size: 2, ModTime: -1, ChangeTime: ns, BirthTime: ns - 1, Inode: 3, Mode: 0o644}},
		{Identity: fsinfo.Identity{Size: 3}, Content: [16]byte{1, 2, 3, 15: 255}},
		{Identity: fsinfo.Identity{Size: NoSize}},
	} {
		snapshot = append(snapshot, Record{Path: fmt.Sprint("forms/", i), ID: id, Outcome: Outcome(i % 3), Result: []byte("result"[:i])})
	}
	log := []Record{changed(testRecord(1), 1), {Path: "new", ID: Identity{Identity: fsinfo.Identity{Size: 4, ModTime: 5, ChangeTime: 6}}, Result: []byte("n")}}
	gone := testRecord(2)

	s := mustLoad(t, file)
	want := asMap(append(snapshot, log...)...)
	delete(want, gone.Path)
	got := contents(t, s)
	for path, rec := range want { // whose Result is nil or empty
		require.Equal(t, rec.ID, got[path].ID, path)
		require.Equal(t, rec.Outcome, got[path].Outcome, path)
		require.Equal(t, string(rec.Result), string(got[path].Result), path)
	}
	require.Len(t, got, len(want))
	require.EqualValues(t, 1, s.Links)

	stamped := stamp{saved: 1_800_000_000_000_000_005, links: 2}
	copy(stamped.boot[:], "a boot")
	chunkOf := func(recs ...Record) (c chunk) {
		for _, rec := range recs {
			c.add(nil, rec)
		}
		return c
	}
	var b []byte
	w := newSnapshotWriter(func(p []byte, at int64) error {
		b = append(b, make([]byte, max(0, int(at)+len(p)-len(b)))...)
		copy(b[at:], p)
		return nil
	})
	_, err = w.snapshot(header{generation: 0x0123456789abcdef, key: testKey, stamp: stamped}, &image{}, []chunk{chunkOf(snapshot...)})
	require.NoError(t, err)
	gone.Outcome, gone.Result = tombstone, nil
	stamped.links = 1
	for _, c := range []chunk{chunkOf(log...), chunkOf(gone)} {
		c.seal(0x0123456789abcdef, stamped)
		b = append(b, c.b...)
	}
	require.Equal(t, written, b)
}
