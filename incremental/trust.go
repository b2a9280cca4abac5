package incremental

import (
	"sync"
	"sync/atomic"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// A trust says on which devices a file's metadata differs after every change of the file.
type trust struct {
	compare Compare
	root    bool          // metadata shows changes on the device of root
	others  sync.Map      // by device: whether metadata shows changes there
	last    atomic.Uint64 // a device on which it does, plus 1
	fine    sync.Map      // by device: whether its clock tells apart two changes in a row
}

// of reports whether metadata shows every change of f, which has the metadata s.
func (t *trust) of(s fileproc.Stat, f *fileproc.File) bool {
	if t.compare != CompareAuto || !t.root {
		return t.root
	}
	// A change time without nanoseconds is from a coarse clock (ext4 with small inodes,
	// HFS+), or from an image that was made with the same times as the one before
	// (squashfs, EROFS, also below an overlay).
	if s.ChangeTime.Nanosecond() == 0 {
		return false
	}
	if t.last.Load() == s.Device+1 { // for each file, a look into the map would take longer
		return true
	}
	if yes, ok := t.others.Load(s.Device); ok {
		return yes.(bool)
	}
	// Below root, another file system may be mounted.
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	yes := fsinfo.FileKeepsTimes(file)
	t.others.Store(s.Device, yes)
	if yes {
		t.last.Store(s.Device + 1)
	}
	return yes
}

// isFine reports whether each change of f that comes after a look at its metadata s shows, also at once.
func (t *trust) isFine(s fileproc.Stat, f *fileproc.File) bool {
	if yes, ok := t.fine.Load(s.Device); ok {
		return yes.(bool)
	}
	file, err := f.Open()
	if err != nil {
		return false
	}
	defer file.Close()
	yes := fsinfo.HasFineTimes(file)
	t.fine.Store(s.Device, yes)
	return yes
}
