package replace

import (
	"testing"
	"time"

	"github.com/fileproc/fileproc/internal/sys"
	"github.com/stretchr/testify/require"
)

func TestTemporaryNames(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		name := newName()
		require.True(t, IsTemporary(name.Bytes()), name.String())
		require.False(t, seen[name.String()])
		seen[name.String()] = true
		for i := range name.Bytes() {
			other := []byte(name.String())
			other[i] = 'G'
			require.False(t, IsTemporary(other))
		}
		require.False(t, IsTemporary(name.Bytes()[1:]))
	}
}

// TestStale: a rename sets the change time, not the time of modification.
func TestStale(t *testing.T) {
	old, recent := time.Now().Add(-StaleAfter-time.Minute), time.Now()
	require.True(t, IsStale(sys.Stat{ModTime: old}))
	require.True(t, IsStale(sys.Stat{ModTime: old, ChangeTime: old}))
	require.False(t, IsStale(sys.Stat{ModTime: old, ChangeTime: recent}))
	require.False(t, IsStale(sys.Stat{ModTime: recent, ChangeTime: old}))
	require.False(t, IsStale(sys.Stat{Mode: 1 << 31, ModTime: old}))
}
