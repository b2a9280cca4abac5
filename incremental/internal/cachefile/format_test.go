package cachefile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"testing"

	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// TestFormat: testdata/format-3.cache has a snapshot, a frame of records and one of a tombstone. Reading it gives the records that
// were written, and writing them gives the same bytes. A change of the format needs another number, and another file.
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

// A header is valid only with the number of this format, and with sizes up to their bounds.
func TestHeaderBounds(t *testing.T) {
	sealed := func(h header, change func(b []byte)) []byte {
		b := h.encode()
		change(b)
		binary.LittleEndian.PutUint32(b[headerSize-4:], crc32.Checksum(b[:headerSize-4], castagnoli))
		return b
	}
	h := header{generation: 3, key: testKey, dataLen: 10 * minRecord, records: 10, dirs: 2, stamp: stamp{saved: 5, links: 6}}
	got, ok := decodeHeader(h.encode())
	require.True(t, ok)
	require.Equal(t, h, got)
	for name, b := range map[string][]byte{
		"short": h.encode()[:headerSize-1], "another magic": sealed(h, func(b []byte) { b[3]++ }), "another format": sealed(h, func(b []byte) { b[16]++ }),
		"a flipped bit": append([]byte{magic[0] ^ 1}, h.encode()[1:]...),
	} {
		_, ok := decodeHeader(b)
		require.False(t, ok, name)
	}
	longest := uint64(maxFile - headerSize)
	for n := longest; ; n-- {
		if h := (header{dataLen: n}); h.sumsAt()+h.sumsLen() <= maxFile {
			longest = n
			break
		}
	}
	for _, tt := range []struct {
		h  header
		ok bool
	}{
		{header{}, true}, {header{dataLen: 10 * minRecord, records: 11}, false}, {header{dataLen: 10*minRecord - 1, records: 10}, false},
		{header{dataLen: longest}, true}, {header{dataLen: longest + 1}, false}, {header{dataLen: maxFile}, false}, {header{dataLen: 1<<64 - headerSize}, false},
		{header{dirs: longest / dirSize}, true}, {header{dirs: longest/dirSize + 1}, false}, {header{dirs: 1 << 61}, false}, {header{dataLen: longest - dirSize, dirs: 1}, true},
		{header{dataLen: longest - dirSize + 1, dirs: 1}, false},
	} {
		got, ok := decodeHeader(tt.h.encode())
		require.Equal(t, tt.ok, ok, tt.h)
		require.Equal(t, tt.h, got)
	}
	require.EqualValues(t, 0, header{}.chunks())
	require.EqualValues(t, 1, header{dataLen: 1}.chunks())
	require.EqualValues(t, 1, header{dataLen: chunkSize}.chunks())
	require.EqualValues(t, 2, header{dataLen: chunkSize - dirSize + 1, dirs: 1}.chunks())
}

// A frame is valid if it is of this generation and whole, its checksum is right, and it holds as many records as it says and nothing else.
func TestFrameChecks(t *testing.T) {
	var c chunk
	for i := range 3 {
		require.Empty(t, c.add(nil, testRecord(i)))
	}
	c.seal(7, stamp{saved: 5})
	resealed := func(change func(b []byte) []byte) []byte {
		b := change(bytes.Clone(c.b))
		binary.LittleEndian.PutUint32(b[20:], frameSum(b))
		return b
	}
	payload, records, ok := frameAt(c.b, 0, 7)
	require.True(t, ok)
	require.Equal(t, 3, records)
	require.Equal(t, c.b[frameHeader:], payload)
	padded := append(append([]byte("before"), c.b...), "behind"...)
	payload, _, ok = frameAt(padded, 6, 7)
	require.True(t, ok)
	require.Equal(t, c.b[frameHeader:], payload)
	require.Equal(t, int64(1000+6+len(c.b)), frames(padded, 1000, 1006, 7))
	require.Equal(t, int64(1005), frames(padded, 1000, 1005, 7))
	for name, b := range map[string][]byte{
		"short": c.b[:len(c.b)-1], "a header alone": c.b[:frameHeader], "half a header": c.b[:frameHeader-1], "nothing": nil,
		"a flipped bit":   append(bytes.Clone(c.b[:60]), append([]byte{c.b[60] ^ 1}, c.b[61:]...)...),
		"another magic":   resealed(func(b []byte) []byte { b[0]++; return b }),
		"a record less":   resealed(func(b []byte) []byte { b[16]--; return b }),
		"a record more":   resealed(func(b []byte) []byte { b[16]++; return b }),
		"an odd record":   resealed(func(b []byte) []byte { b[frameHeader+34] |= 0x80; return b }),
		"half a record":   resealed(func(b []byte) []byte { b[4]--; return b[:len(b)-1] }),
		"a longer length": resealed(func(b []byte) []byte { b[4]++; return b }),
	} {
		_, _, ok := frameAt(b, 0, 7)
		require.False(t, ok, name)
	}
	_, _, ok = frameAt(c.b, 0, 8)
	require.False(t, ok, "of another generation")
	empty := chunk{b: make([]byte, frameHeader)}
	empty.seal(7, stamp{})
	payload, records, ok = frameAt(empty.b, 0, 7)
	require.True(t, ok)
	require.Empty(t, payload)
	require.Zero(t, records)
}

// A chunk is full when another record might not fit, and a record that is larger has one of its own.
func TestChunks(t *testing.T) {
	var c chunk
	var full []chunk
	rec := func(n int) Record { return Record{Path: "p", Result: make([]byte, n)} }
	for i := 0; len(full) < 3; i++ {
		before := c
		full = c.add(full, rec(i%1000))
		if c.records == 1 && len(full) > 0 {
			require.Greater(t, len(before.b)+maxRecordHead+1+i%1000, chunkSize)
			require.Equal(t, before, full[len(full)-1])
			require.Equal(t, chunkSize, cap(c.b), "its memory is not made several times")
		}
		require.LessOrEqual(t, len(c.b), chunkSize)
	}
	c, full = chunk{}, nil
	full = c.add(full, rec(0))
	exact := chunkSize - len(c.b) - maxRecordHead - 1
	full = c.add(full, rec(exact))
	require.Empty(t, full, "it just fits")
	c, full = chunk{}, nil
	full = c.add(full, rec(0))
	full = c.add(full, rec(exact+1))
	require.Len(t, full, 1)
	c, full = chunk{}, nil
	full = c.add(full, rec(3*chunkSize))
	require.Empty(t, full)
	full = c.add(full, rec(0))
	require.Len(t, full, 1)
	require.Equal(t, 1, full[0].records)
}
