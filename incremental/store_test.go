package incremental

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var testKey = [32]byte{1, 2, 3}

func testRecord(i int) record {
	return record{path: fmt.Sprintf("tickets/%03d/ticket-%07d.md", i%1000, i), result: fmt.Appendf(nil, `{"id":%d,"state":"open"}`, i),
		id: identity{size: int64(400 + i%50), mtime: 1_700_000_000_000_000_000 + int64(i)*1001, ctime: 1_700_000_000_000_000_000 + int64(i)*1001,
			btime: 1_690_000_000_000_000_000 + int64(i), inode: uint64(i + 12), mode: 0o644}}
}

func mustLoad(t testing.TB, file string) *store {
	s, err := load(file, testKey, 4)
	require.NoError(t, err)
	return s
}

func TestRoundTrip(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cache")
	s := mustLoad(t, file)
	const n = 20000
	for i := range n {
		s.add(i%4, testRecord(i))
	}
	require.NoError(t, s.save(nil))
	for round := range 30 {
		s = mustLoad(t, file)
		require.Equal(t, n, s.len())
		for i := range n {
			want := testRecord(i)
			if i < round*100 {
				want.id.size = int64(i) << 33
			}
			rec, k, ok := s.lookup(want.path)
			require.True(t, ok)
			if rec.id != want.id {
				require.Equal(t, want.id, rec.id)
			}
			require.Equal(t, string(want.result), string(rec.result))
			s.markSeen(k)
		}
		for range s.unseen() {
			t.Fatal("unseen")
		}
		for i := range (round + 1) * 100 {
			rec := testRecord(i)
			rec.id.size = int64(i) << 33
			s.add(rand.IntN(4), rec)
		}
		require.NoError(t, s.save(nil))
	}
	info, _ := os.Stat(file)
	t.Log(info.Size()/n, "bytes a record")
}
