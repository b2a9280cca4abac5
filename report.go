package fileproc

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// A SkipReason says why a file that was found was not handed to fn, or was
// handed to it and declined.
type SkipReason string

// The reasons for which a file is skipped.
const (
	SkippedSuffix          SkipReason = "suffix"           // no Options.Suffixes fits
	SkippedHidden          SkipReason = "hidden"           // Options.SkipHidden and a leading dot
	SkippedPattern         SkipReason = "pattern"          // by Options.Include or Exclude
	SkippedIgnored         SkipReason = "ignored"          // by Options.IgnoreFiles
	SkippedShard           SkipReason = "other-shard"      // it belongs to another one than Options.Shard
	SkippedNotRegular      SkipReason = "not-regular"      // a symbolic link, FIFO, socket or device
	SkippedOtherFilesystem SkipReason = "other-filesystem" // a directory, by Options.OneFilesystem
	SkippedOutside         SkipReason = "outside-root"     // a symbolic link, unless Options.SymlinksOutside
	SkippedDuplicate       SkipReason = "duplicate"        // a link to a directory that is come to by another path
	SkippedSelect          SkipReason = "select"           // Options.Select said no
	SkippedSelectDir       SkipReason = "select-dir"       // a directory: Options.SelectDir said no
	SkippedMarked          SkipReason = "marked"           // a directory that lists a file of Options.SkipMarked
	SkippedBinary          SkipReason = "binary"           // Options.SkipBinary and a NUL byte
	SkippedByFunc          SkipReason = "func"             // fn returned ErrSkip or fs.SkipAll
)

// skipReasons are the reasons by the number under which a worker counts them.
var skipReasons = [skipReasonCount]SkipReason{
	skipSuffix:          SkippedSuffix,
	skipHidden:          SkippedHidden,
	skipPattern:         SkippedPattern,
	skipIgnored:         SkippedIgnored,
	skipShard:           SkippedShard,
	skipNotRegular:      SkippedNotRegular,
	skipOtherFilesystem: SkippedOtherFilesystem,
	skipOutside:         SkippedOutside,
	skipDuplicate:       SkippedDuplicate,
	skipSelect:          SkippedSelect,
	skipSelectDir:       SkippedSelectDir,
	skipMarked:          SkippedMarked,
	skipBinary:          SkippedBinary,
	skipByFunc:          SkippedByFunc,
}

// A Report is the ledger of a run. When the run has returned,
//
//	Found = Processed + the sum of Skipped + Failed + Abandoned
//
// Found counts the entries that are not directories, and a directory that
// could not be opened or read to its end adds one to Found and to Failed. One
// that is left out because of what it turned out to be when it was opened, or
// by SelectDir, adds one to Found and to Skipped. Directories left out by their path
// or name (MaxDepth, SkipHidden, Include, Exclude, IgnoreFiles) are not counted.
type Report struct {
	Directories int64 // directories listed to their end, root among them
	Found       int64 // files and other entries that are not directories
	Processed   int64 // files for which fn returned a result
	Failed      int64 // files and directories that gave an error
	Abandoned   int64 // files left when the run was cancelled or stopped early
	Bytes       int64 // bytes of content handed to fn as File.Data; not what fn reads through File.Open
	URing       int64 // files that io_uring has read, whatever became of them then (Linux)
	Skipped     map[SkipReason]int64
	Elapsed     time.Duration
}

func newReport(c counts, elapsed time.Duration) Report {
	r := Report{
		Directories: c.directories, Found: c.found, Processed: c.processed, Failed: c.failed, Abandoned: c.abandoned,
		Bytes: c.bytes, URing: c.uring, Skipped: map[SkipReason]int64{}, Elapsed: elapsed,
	}
	for i, n := range c.skipped {
		if n > 0 {
			r.Skipped[skipReasons[i]] += n
		}
	}
	return r
}

// String returns the Report in one line, for people. Where fn has returned
// ErrSkip, the files that it got and those that it processed are told apart.
func (r Report) String() string {
	var b strings.Builder
	if declined := r.Skipped[SkippedByFunc]; declined > 0 {
		fmt.Fprintf(&b, "%s delivered, %d of them processed", counted(r.Processed+declined, "file"), r.Processed)
	} else {
		fmt.Fprintf(&b, "%s processed", counted(r.Processed, "file"))
	}
	fmt.Fprintf(&b, ", %s read, %s", inUnits(r.Bytes), counted(r.Directories, "directory"))
	if len(r.Skipped) > 0 {
		total := int64(0)
		var each []string
		for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
			total += r.Skipped[why]
			each = append(each, fmt.Sprintf("%s %d", why, r.Skipped[why]))
		}
		fmt.Fprintf(&b, ", %d skipped (%s)", total, strings.Join(each, ", "))
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

// counted tells how many things there are, of which what is the name of one.
func counted(n int64, what string) string {
	switch stem, isY := strings.CutSuffix(what, "y"); {
	case n == 1:
		return "1 " + what
	case isY:
		return fmt.Sprintf("%d %sies", n, stem)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// inUnits tells a number of bytes with a decimal prefix (IEC 80000-13).
func inUnits(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	v, unit := float64(n)/1000, 0
	for v >= 999.95 && unit < len("kMGTPE")-1 {
		v, unit = v/1000, unit+1
	}
	return fmt.Sprintf("%.1f %cB", v, "kMGTPE"[unit])
}
