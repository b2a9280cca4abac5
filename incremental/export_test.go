package incremental

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/internal/fsinfo"
	"github.com/stretchr/testify/require"
)

// Settled is settled in tests: longer than a step of the clock of the file systems that they run on.
const Settled = 50 * time.Millisecond

func init() { settled, judgedAtOnce = Settled, JudgedAtOnce }

// TestMain lets more tests run at a time than there are processors: many sleep.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	os.Exit(m.Run())
}

// NeedsTimes skips a test of what the metadata decides, where the content does.
func NeedsTimes(t *testing.T) {
	if !fsinfo.KeepsTimes(t.TempDir()) {
		t.Skip("the file system of the test's directory is not known to keep times")
	}
}

// SaveAlways makes a run save after each file that it keeps, until the function that it returns is called.
func SaveAlways() (end func()) {
	saveEvery = -1
	return func() { saveEvery = 30 * time.Second }
}

// Boot makes the machine look started anew, as name, and sets the clock of saves ahead, until the function that it returns is called.
func Boot(name string, ahead time.Duration) (end func()) {
	oldBoot, oldClock := thisBoot, clock
	thisBoot = func() (b [16]byte) { copy(b[:], name); return b }
	clock = func() time.Time { return time.Now().Add(ahead) }
	return func() { thisBoot, clock = oldBoot, oldClock }
}

// WrittenBack is writtenBack.
const WrittenBack = writtenBack

// JudgedAtOnce is judgedAtOnce.
const JudgedAtOnce = 64

// Rounds returns how often a test repeats what it does: as often as the variable says, else n times, or a third of that with
// -short.
func Rounds(t *testing.T, variable string, n int) int {
	if testing.Short() {
		n = (n + 2) / 3
	}
	if s := os.Getenv(variable); s != "" {
		_, err := fmt.Sscan(s, &n)
		require.NoError(t, err, variable)
	}
	return n
}

// Noted is what Kept says of a file that was met but not kept.
const Noted = "noted"

// Kept returns what inc.File holds for a run: the entries by their paths, each with what is compared of the file. Metadata is
// given as size, mtime, ctime, inode and mode.
func Kept[T any](root string, inc Options[T], opts fileproc.Options) map[string]string {
	codec, _ := codecOf(inc.Codec)
	s, _ := load(inc.File, (&run[T]{root: root, inc: &inc, opts: opts, codec: codec}).key(), 1)
	kept := map[string]string{}
	for _, rec := range s.unseen() {
		id := fmt.Sprint(rec.id.size, rec.id.mtime, rec.id.ctime, rec.id.inode, rec.id.mode)
		switch {
		case rec.id.size == noSize:
			id = Noted
		case rec.id.content != noContent:
			id = fmt.Sprintf("%d %x", rec.id.size, rec.id.content)
		}
		kept[string(rec.path)] = id
	}
	return kept
}
