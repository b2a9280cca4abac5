package incremental

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental/internal/cachefile"
	"github.com/fileproc/fileproc/internal/fsinfo"
)

// Settled is fsinfo.Settled in tests: longer than a step of the clock of the file systems that they run on.
const Settled = 50 * time.Millisecond

func init() { fsinfo.Settled, judgedAtOnce = Settled, JudgedAtOnce }

// TestMain lets more tests run at a time than there are processors: many sleep.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	os.Exit(m.Run())
}

// NeedsTimes skips a test about the comparison of metadata on a file system where runs compare content.
func NeedsTimes(t *testing.T) {
	if ok, _ := fsinfo.KeepsTimes(t.TempDir()); !ok {
		t.Skip("the file system of the test's directory is not known to keep times")
	}
}

// SaveAlways makes a run save after each file that it keeps, until the function that it returns is called.
func SaveAlways() (end func()) {
	saveEvery = -1
	return func() { saveEvery = 30 * time.Second }
}

// SetIsStill sets the hook by which package watch says that nothing has happened to a file.
func SetIsStill(opts *fileproc.Options, isStill func(rel string) bool) {
	core.Hooks(opts).IsStill = isStill
}

// Boot makes the machine look started anew, as name, and sets the clock of saves ahead, until the function that it returns is called.
func Boot(name string, ahead time.Duration) (end func()) {
	oldBoot, oldClock := cachefile.ThisBoot, cachefile.Clock
	cachefile.ThisBoot = func() (b [16]byte) { copy(b[:], name); return b }
	cachefile.Clock = func() time.Time { return time.Now().Add(ahead) }
	return func() { cachefile.ThisBoot, cachefile.Clock = oldBoot, oldClock }
}

// JudgedAtOnce is judgedAtOnce.
const JudgedAtOnce = 64

// Noted is what Kept says of a file that was met, but whose result was not kept.
const Noted = "noted"

// Kept returns the entries that inc.File holds for a run, by path, each with what runs compare of the file. It gives metadata
// as size, mtime, ctime, inode and mode.
func Kept[T any](root string, inc Options[T], opts fileproc.Options) map[string]string {
	codec, _ := codecOf(inc.Codec)
	s, _ := cachefile.Load(inc.File, (&run[T]{root: root, inc: &inc, opts: opts, codec: codec}).key(), 1)
	kept := map[string]string{}
	for _, rec := range s.Unseen() {
		id := fmt.Sprint(rec.ID.Size, rec.ID.ModTime, rec.ID.ChangeTime, rec.ID.Inode, uint32(rec.ID.Mode))
		switch {
		case rec.ID.Size == cachefile.NoSize:
			id = Noted
		case rec.ID.Content != noContent:
			id = fmt.Sprintf("%d %x", rec.ID.Size, rec.ID.Content)
		}
		kept[rec.Path()] = id
	}
	return kept
}

// Remembered returns the paths of the files of which a session knows more than its cache file did when it was loaded.
func Remembered[T any](s *Session[T]) []string { return slices.Sorted(maps.Keys(s.recent)) }

// Known returns how many files a session knows that have a result or for which fn fails: by its own count, and counted here.
func Known[T any](s *Session[T]) (counted, found int) {
	var count func(d *dirSet)
	count = func(d *dirSet) {
		found += len(d.names) + len(d.files)
		for _, sub := range d.subs {
			count(sub)
		}
	}
	count(&s.files.root)
	return s.files.count, found
}

// KnownDirs returns how many directories a session knows that have or had such files.
func KnownDirs[T any](s *Session[T]) (n int) {
	var count func(d *dirSet)
	count = func(d *dirSet) {
		n += len(d.subs)
		for _, sub := range d.subs {
			count(sub)
		}
	}
	count(&s.files.root)
	return n
}

// SaveStore saves what the session has put into its store.
func SaveStore[T any](s *Session[T]) error { return s.r.store.Save(context.Background(), nil) }
