package incremental

import (
	"fmt"
	"time"

	"github.com/fileproc/fileproc"
)

// Settled is settled in tests: longer than a step of the clock of the file systems that they run on.
const Settled = 50 * time.Millisecond

func init() { settled = Settled }

// SaveAlways makes a run save after each file that it keeps, until the function that it returns is called.
func SaveAlways() (end func()) {
	saveEvery = -1
	return func() { saveEvery = 30 * time.Second }
}

// Kept returns what inc.File holds for a run: the entries by their paths, each with what is compared of the file. Metadata is
// given as size, mtime, ctime, inode and mode.
func Kept[T any](root string, inc Options[T], opts fileproc.Options) map[string]string {
	codec, _ := codecOf(inc.Codec)
	s, _ := load(inc.File, (&run[T]{root: root, inc: &inc, opts: opts, codec: codec}).key(), 1)
	kept := map[string]string{}
	for _, rec := range s.unseen() {
		id := fmt.Sprint(rec.id.size, rec.id.mtime, rec.id.ctime, rec.id.inode, rec.id.mode)
		if rec.id.content != noContent {
			id = fmt.Sprintf("%d %x", rec.id.size, rec.id.content)
		}
		kept[string(rec.path)] = id
	}
	return kept
}
