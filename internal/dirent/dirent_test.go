package dirent

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// encode appends a record as the kernel lays it out: the name ends in a NUL and the length is a multiple of 8.
func encode(buf []byte, r Record) []byte {
	// The longest name that fits leaves no room to round up.
	reclen := min((nameOffset+len(r.Name)+1+7)&^7, math.MaxUint16)
	buf = binary.NativeEndian.AppendUint64(buf, r.Ino)
	buf = binary.NativeEndian.AppendUint64(buf, uint64(r.Off))
	buf = binary.NativeEndian.AppendUint16(buf, uint16(reclen))
	buf = append(buf, r.Type)
	buf = append(buf, r.Name...)
	return append(buf, make([]byte, reclen-nameOffset-len(r.Name))...)
}

// raw returns a record whose length field need not agree with its bytes.
func raw(reclen int, name string) []byte {
	buf := make([]byte, nameOffset, nameOffset+len(name))
	binary.NativeEndian.PutUint16(buf[reclenOffset:], uint16(reclen))
	return append(buf, name...)
}

var wellFormed = []Record{
	{Ino: 1, Off: 1, Type: Directory, Name: []byte(".")},
	{Ino: 2, Off: 2, Type: Directory, Name: []byte("..")},
	{Ino: 3, Off: 3, Type: Regular, Name: []byte("a")},
	{Ino: 4, Off: 4, Type: Unknown, Name: []byte("four")}, // 19 + 4 + 1 = 24: no padding
	{Ino: 5, Off: 5, Type: Symlink, Name: []byte("fives")},
	{Ino: 0, Off: 0, Type: FIFO, Name: []byte("inode 0 is an entry like any other")},
	{Ino: math.MaxUint64, Off: math.MaxInt64, Type: Socket, Name: []byte("largest")},
	{Ino: 6, Off: math.MinInt64, Type: math.MaxUint8, Name: []byte("negative cookie, undefined type")},
	{Ino: 7, Off: 7, Type: Regular, Name: []byte("\xff\xfe\n\t\\ not UTF-8")},
	{Ino: 8, Off: 8, Type: Regular, Name: bytes.Repeat([]byte("n"), 255)},
	{Ino: 8, Off: 8, Type: Regular, Name: []byte("../up")},                  // the caller rejects a slash
	{Ino: 9, Off: 9, Type: Whiteout, Name: bytes.Repeat([]byte("n"), 4096)}, // NAME_MAX is not checked
	{Ino: 10, Off: 10, Name: bytes.Repeat([]byte("n"), math.MaxUint16-nameOffset-1)},
}

func TestNext(t *testing.T) {
	var buf []byte
	for _, r := range wellFormed {
		buf = encode(buf, r)
	}
	for _, want := range wellFormed {
		rec, rest, err := Next(buf)
		require.NoError(t, err)
		require.Equal(t, want, rec)
		require.Equal(t, len(rec.Name), cap(rec.Name), "an append to the name would overwrite the buffer")
		require.Less(t, len(rest), len(buf))
		buf = rest
	}
	require.Empty(t, buf)
}

// TestNextEveryNameLength covers every amount of padding, and a buffer that ends with the record.
func TestNextEveryNameLength(t *testing.T) {
	for n := 1; n <= 300; n++ {
		want := Record{Ino: uint64(n), Off: int64(n), Type: Regular, Name: []byte(strings.Repeat("x", n))}
		rec, rest, err := Next(encode(nil, want))
		require.NoError(t, err)
		require.Equal(t, want, rec)
		require.Empty(t, rest)
	}
}

func TestNextMalformed(t *testing.T) {
	good := encode(nil, Record{Name: []byte("name")})
	for _, tc := range []struct {
		name string
		buf  []byte
		says string
	}{
		{"nothing", nil, "0 bytes left"},
		{"less than a header", make([]byte, nameOffset-1), "18 bytes left"},
		{"a header alone", make([]byte, nameOffset), "19 bytes left"},
		{"length 0", raw(0, "a\x00"), "length 0 is too short"},
		{"length below the header's", raw(18, "a\x00"), "length 18 is too short"},
		{"length of a header", raw(19, "a\x00"), "length 19 is too short"},
		{"length beyond the buffer by 1", raw(22, "a\x00"), "length 22 with 21 bytes left"},
		{"largest length", raw(math.MaxUint16, "a\x00"), "length 65535 with 21 bytes left"},
		{"cut short", good[:len(good)-1], "length 24 with 23 bytes left"},
		{"no NUL", raw(23, "abcd"), `name "abcd" has no terminating NUL`},
		{"NUL beyond the record", raw(21, "ab\x00"), `name "ab" has no terminating NUL`},
		{"empty name", raw(20, "\x00"), "empty name"},
		{"empty name, padded", raw(24, "\x00\x00\x00\x00\x00"), "empty name"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, rest, err := Next(tc.buf)
			require.ErrorIs(t, err, ErrMalformed)
			require.ErrorContains(t, err, tc.says)
			require.Zero(t, rec)
			require.Nil(t, rest)
		})
	}
}

// TestNextIgnoresPadding: the kernel does not clear what follows the NUL.
func TestNextIgnoresPadding(t *testing.T) {
	rec, rest, err := Next(raw(24, "a\x00/\x00b"))
	require.NoError(t, err)
	require.Equal(t, "a", string(rec.Name))
	require.Empty(t, rest)
}

func TestNextDoesNotAllocate(t *testing.T) {
	buf := encode(nil, Record{Ino: 1, Type: Regular, Name: []byte("ticket-000001.md")})
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if _, _, err := Next(buf); err != nil {
			panic(err)
		}
	}))
}

func FuzzNext(f *testing.F) {
	var all []byte
	for _, r := range wellFormed {
		f.Add(encode(nil, r))
		all = encode(all, r)
	}
	f.Add(all)
	f.Add(all[:len(all)-1])
	f.Add([]byte{})
	f.Add(raw(0, "a\x00"))
	f.Add(raw(19, "a\x00"))
	f.Add(raw(math.MaxUint16, "a\x00"))
	f.Add(raw(23, "abcd"))
	f.Add(raw(20, "\x00"))
	f.Add(raw(23, "a/b\x00"))
	f.Fuzz(func(t *testing.T, buf []byte) {
		for len(buf) > 0 {
			rec, rest, err := Next(buf)
			if err != nil {
				require.ErrorIs(t, err, ErrMalformed)
				require.Nil(t, rest)
				return
			}
			require.LessOrEqual(t, len(rest), len(buf)-nameOffset-2, "less than a whole record was consumed")
			require.NotEmpty(t, rec.Name)
			require.NotContains(t, string(rec.Name), "\x00")

			again, rest2, err := Next(encode(nil, rec))
			require.NoError(t, err)
			require.Equal(t, rec, again, "a record differs after encoding and parsing it again")
			require.Empty(t, rest2)
			buf = rest
		}
	})
}

func BenchmarkNext(b *testing.B) {
	var buf []byte
	for range 1000 {
		buf = encode(buf, Record{Ino: 1, Type: Regular, Name: []byte("ticket-000001.md")})
	}
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		for rest := buf; len(rest) > 0; {
			var err error
			if _, rest, err = Next(rest); err != nil {
				b.Fatal(err)
			}
		}
	}
}
