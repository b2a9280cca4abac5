package fileproc

// counts is one worker's part of a Report.
type counts struct {
	directories, found, processed, unchanged, failed, abandoned, bytes, uring int64
	skipped                                                                   [skipReasonCount]int64
}

func (c *counts) add(d *counts) {
	c.directories += d.directories
	c.found += d.found
	c.processed += d.processed
	c.unchanged += d.unchanged
	c.failed += d.failed
	c.abandoned += d.abandoned
	c.bytes += d.bytes
	c.uring += d.uring
	for i, n := range d.skipped {
		c.skipped[i] += n
	}
}

// A skipReason is the number of a SkipReason.
type skipReason int

const (
	skipSuffix skipReason = iota
	skipHidden
	skipPattern
	skipIgnored
	skipShard
	skipNotRegular
	skipOtherFilesystem
	skipOutside
	skipDuplicate
	skipSelect
	skipSelectDir
	skipMarked
	skipBinary
	skipByFunc
	skipReasonCount
	notSkipped skipReason = -1
)
