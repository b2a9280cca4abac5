package backend

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fileproc/fileproc/internal/replace"
	"github.com/stretchr/testify/require"
)

// A syncs counts its calls.
type syncs int

func (s *syncs) Sync() error { *s++; return nil }
func (*syncs) Close()        {}

// A group is synced twice, but not if it is empty.
func TestMakeDurableSyncs(t *testing.T) {
	for n, want := range []syncs{0, 2} {
		var s syncs
		require.Len(t, MakeDurable(&s, n, func(int, error) error { return nil }, nil), n)
		require.Equal(t, want, s)
	}
}

// A diskDir has files of a disk of its own.
type diskDir struct {
	Directory
	GroupReplacer
	disk uint64
}

func (d diskDir) Identity() (Identity, error)   { return d, nil }
func (d diskDir) Same(o Identity) bool          { return d == o }
func (d diskDir) Inode() (device, inode uint64) { return d.disk, 0 }
func (diskDir) OpenSync() (Syncer, error)       { return new(syncs), nil }

// Each group holds a descriptor, and there is no new one while groups hold too many.
func TestGroupsHoldDescriptors(t *testing.T) {
	var gs Groups[int]
	first := gs.For(diskDir{disk: 1})
	require.NotNil(t, gs.For(diskDir{disk: 2}))
	require.EqualValues(t, 2, held.Load())
	held.Add(1 << 40)
	require.Same(t, first, gs.For(diskDir{disk: 1}))
	require.Nil(t, gs.For(diskDir{disk: 3}))
	held.Add(-1 << 40)
	gs.Close()
	require.Zero(t, held.Load())
}

// A group waits far less long than until its temporary files look like leftovers.
func TestGroupOfSlowFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		for range 2 {
			require.False(t, g.Add(1, 1))
			time.Sleep(replace.StaleAfter / 5)
			require.False(t, g.Add(2, 1))
			time.Sleep(replace.StaleAfter / 5)
			require.True(t, g.Add(3, 1))
			require.Len(t, g.Take(), 3)
		}
	})
}
