package fileproc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A SkipReason says why an entry was not passed to fn, or that fn declined it.
type SkipReason string

// The reasons for which an entry is skipped.
const (
	SkippedSuffix          SkipReason = "suffix"           // matches none of Options.Suffixes
	SkippedHidden          SkipReason = "hidden"           // name with a leading dot, by Options.SkipHidden
	SkippedPattern         SkipReason = "pattern"          // by Options.Include or Exclude
	SkippedIgnored         SkipReason = "ignored"          // by Options.IgnoreFiles, GitIgnore or GitTracked
	SkippedShard           SkipReason = "other-shard"      // belongs to another shard than Options.Shard
	SkippedNotRegular      SkipReason = "not-regular"      // a symbolic link, FIFO, socket or device, without Options.AllTypes
	SkippedOtherFilesystem SkipReason = "other-filesystem" // a directory, by Options.OneFilesystem
	SkippedOutside         SkipReason = "outside-root"     // a symbolic link out of root, without Options.SymlinksOutside
	SkippedDuplicate       SkipReason = "duplicate"        // a link to a directory reached by another path, or a file replaced by another path
	SkippedSelect          SkipReason = "select"           // by Options.Select
	SkippedSelectDir       SkipReason = "select-dir"       // a directory, by Options.SelectDir
	SkippedMarked          SkipReason = "marked"           // a directory, by Options.SkipMarked
	SkippedDangling        SkipReason = "dangling"         // a symbolic link that leads nowhere, or to itself, where Options.Symlinks follows links
	SkippedLarger          SkipReason = "larger"           // by Options.SkipLarger
	SkippedBinary          SkipReason = "binary"           // content with a NUL byte, by Options.SkipBinary
	SkippedRemote          SkipReason = "remote"           // content that is stored remotely, without Options.Download
	SkippedByFunc          SkipReason = "func"             // fn returned ErrSkip or fs.SkipAll
)

// notSkipped is no reason.
const notSkipped SkipReason = ""

// A Report is the ledger of a run. When the run has returned,
//
//	Found = Processed + Unchanged + the sum of Skipped + Failed + Abandoned
//
// Found counts the entries that are not directories. A directory, or root, adds one
// to Found and Failed if it could not be opened or read to its end. It adds one to
// Found and Skipped if [Options.SelectDir] left it out, or if opening or listing it
// showed the reason (OneFilesystem, SkipMarked, a duplicate). A directory left out by
// its path or name (MaxDepth, SkipHidden, Include, Exclude, IgnoreFiles, GitIgnore, GitTracked) is
// not counted.
//
// With [Options.AllTypes], Found also counts each directory that is an entry, root too: it
// is processed, failed or skipped (by Shard or fn) as a file is. If opening or listing it
// fails or shows a reason to leave it out, it is counted once more, as above.
type Report struct {
	Directories int64 // directories listed to their end, root among them
	Found       int64 // files and other entries that are not directories
	Processed   int64 // files for which fn returned a result
	Unchanged   int64 // files that package incremental found as they were, for which fn was not called
	Failed      int64 // files and directories with an error
	Abandoned   int64 // files left when the run was cancelled or stopped early
	Bytes       int64 // bytes of content: File.Data, and what File.Reader gave behind it; not what is read through File.Open
	Replaced    int64 // files that File.Replace has replaced, whatever their outcome
	URing       int64 // files that io_uring has read (Linux), whatever their outcome
	Skipped     map[SkipReason]int64
	Elapsed     time.Duration
	// Listed says that all has been listed: Found stays as it is. With [SymlinksFollow], it
	// is false until the run is over. A run that was stopped before leaves it false.
	Listed bool
}

func newReport(c counts, elapsed time.Duration) Report {
	r := Report{
		Directories: c.directories, Found: c.found, Processed: c.processed, Unchanged: c.unchanged, Failed: c.failed, Abandoned: c.abandoned,
		Bytes: c.bytes, Replaced: c.replaced, URing: c.uring, Skipped: map[SkipReason]int64{}, Elapsed: elapsed, Listed: c.listed,
	}
	for _, s := range c.skipped {
		if s.n > 0 {
			r.Skipped[s.why] += s.n
		}
	}
	return r
}

// Add adds the Report of another run to r, for one Report of several roots. Elapsed becomes
// the sum, too, and Listed becomes other.Listed.
func (r *Report) Add(other Report) {
	r.Directories += other.Directories
	r.Found += other.Found
	r.Processed += other.Processed
	r.Unchanged += other.Unchanged
	r.Failed += other.Failed
	r.Abandoned += other.Abandoned
	r.Bytes += other.Bytes
	r.Replaced += other.Replaced
	r.URing += other.URing
	r.Elapsed += other.Elapsed
	r.Listed = other.Listed
	skipped := map[SkipReason]int64{} // copies of r keep theirs
	maps.Copy(skipped, r.Skipped)
	for why, n := range other.Skipped {
		skipped[why] += n
	}
	r.Skipped = skipped
}

// String returns the Report as one line for people. If fn has returned ErrSkip,
// it shows both the number of files that fn got and the number processed.
func (r Report) String() string {
	var b strings.Builder
	if declined := r.Skipped[SkippedByFunc]; declined > 0 {
		fmt.Fprintf(&b, "%s delivered, %d of them processed", counted(r.Processed+declined, "file", "files"), r.Processed)
	} else {
		fmt.Fprintf(&b, "%s processed", counted(r.Processed, "file", "files"))
	}
	if r.Unchanged > 0 {
		fmt.Fprintf(&b, ", %d unchanged", r.Unchanged)
	}
	fmt.Fprintf(&b, ", %s read, %s", inUnits(r.Bytes), counted(r.Directories, "directory", "directories"))
	if len(r.Skipped) > 0 {
		total := int64(0)
		var each []string
		for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
			total += r.Skipped[why]
			each = append(each, fmt.Sprintf("%s %d", why, r.Skipped[why]))
		}
		fmt.Fprintf(&b, ", %d skipped (%s)", total, strings.Join(each, ", "))
	}
	if r.Replaced > 0 {
		fmt.Fprintf(&b, ", %d replaced", r.Replaced)
	}
	if r.Failed > 0 {
		fmt.Fprintf(&b, ", %d failed", r.Failed)
	}
	if r.Abandoned > 0 {
		fmt.Fprintf(&b, ", %d abandoned", r.Abandoned)
	}
	digits := time.Millisecond
	if r.Elapsed < 10*time.Millisecond {
		digits = time.Microsecond
	}
	fmt.Fprintf(&b, ", in %v", r.Elapsed.Round(digits))
	return b.String()
}

// counted returns how many things there are, with the word for one or for several.
func counted(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// inUnits returns n bytes as text, with a decimal prefix (IEC 80000-13).
func inUnits(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1000, 0
	for v >= 999.95 {
		v, unit = v/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", v, "kMGTPE"[unit])
}

// counts is one worker's part of a Report.
type counts struct {
	directories, found, processed, unchanged, failed, abandoned, bytes, replaced, uring int64

	listed  bool                 // of a run's counts: see Report
	skipped [maxReasons]struct { // in the order in which the reasons were met
		why SkipReason
		n   int64
	}
}

// maxReasons is more than the number of SkipReasons: a place is always free.
const maxReasons = 18

func (c *counts) add(d *counts) {
	c.directories += d.directories
	c.found += d.found
	c.processed += d.processed
	c.unchanged += d.unchanged
	c.failed += d.failed
	c.abandoned += d.abandoned
	c.bytes += d.bytes
	c.replaced += d.replaced
	c.uring += d.uring
	for i := 0; d.skipped[i].n > 0; i++ { // a place is always free
		c.addSkipped(d.skipped[i].why, d.skipped[i].n)
	}
}

// addSkipped counts n entries that are skipped because of why.
func (c *counts) addSkipped(why SkipReason, n int64) {
	for i := range c.skipped {
		s := &c.skipped[i]
		if s.n == 0 {
			s.why = why
		}
		if s.why == why {
			s.n += n
			return
		}
	}
	panic("fileproc: more SkipReasons than maxReasons")
}
