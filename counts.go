package fileproc

// counts is one worker's part of a Report.
type counts struct {
	directories, found, processed, unchanged, failed, abandoned, bytes, uring int64

	skipped [maxReasons]struct { // in the order in which the reasons were met
		why SkipReason
		n   int64
	}
}

// maxReasons is no less than the number of SkipReasons.
const maxReasons = 16

func (c *counts) add(d *counts) {
	c.directories += d.directories
	c.found += d.found
	c.processed += d.processed
	c.unchanged += d.unchanged
	c.failed += d.failed
	c.abandoned += d.abandoned
	c.bytes += d.bytes
	c.uring += d.uring
	for _, s := range d.skipped {
		if s.n > 0 {
			c.skip(s.why, s.n)
		}
	}
}

// skip counts n entries that are skipped because of why.
func (c *counts) skip(why SkipReason, n int64) {
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

// A SkipReason says why an entry was not passed to fn, or that fn declined it.
type SkipReason string

// The reasons for which an entry is skipped.
const (
	SkippedSuffix          SkipReason = "suffix"           // matches none of Options.Suffixes
	SkippedHidden          SkipReason = "hidden"           // name with a leading dot, by Options.SkipHidden
	SkippedPattern         SkipReason = "pattern"          // by Options.Include or Exclude
	SkippedIgnored         SkipReason = "ignored"          // by Options.IgnoreFiles
	SkippedShard           SkipReason = "other-shard"      // belongs to another shard than Options.Shard
	SkippedNotRegular      SkipReason = "not-regular"      // a symbolic link, FIFO, socket or device
	SkippedOtherFilesystem SkipReason = "other-filesystem" // a directory, by Options.OneFilesystem
	SkippedOutside         SkipReason = "outside-root"     // a symbolic link out of root, without Options.SymlinksOutside
	SkippedDuplicate       SkipReason = "duplicate"        // a link to a directory reached by another path
	SkippedSelect          SkipReason = "select"           // by Options.Select
	SkippedSelectDir       SkipReason = "select-dir"       // a directory, by Options.SelectDir
	SkippedMarked          SkipReason = "marked"           // a directory, by Options.SkipMarked
	SkippedBinary          SkipReason = "binary"           // content with a NUL byte, by Options.SkipBinary
	SkippedByFunc          SkipReason = "func"             // fn returned ErrSkip or fs.SkipAll
)

// notSkipped is no reason.
const notSkipped SkipReason = ""
