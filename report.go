package fileproc

import "time"

// A SkipReason says why a file that was found was not handed to fn, or was
// handed to it and declined.
type SkipReason string

// The reasons for which a file is skipped.
const (
	SkippedSuffix     SkipReason = "suffix"      // no Options.Suffixes fits
	SkippedHidden     SkipReason = "hidden"      // Options.SkipHidden and a leading dot
	SkippedNotRegular SkipReason = "not regular" // a symbolic link, FIFO, socket or device
	SkippedSelect     SkipReason = "select"      // Options.Select said no
	SkippedByFunc     SkipReason = "func"        // fn returned ErrSkip or fs.SkipAll
)

// skipReasons numbers the reasons, so that a worker counts in an array.
var skipReasons = [...]SkipReason{SkippedSuffix, SkippedHidden, SkippedNotRegular, SkippedSelect, SkippedByFunc}

const (
	skipSuffix = iota
	skipHidden
	skipNotRegular
	skipSelect
	skipByFunc
)

// A Report is the ledger of a run. When the run has returned,
//
//	Found = Processed + the sum of Skipped + Failed + Abandoned
//
// Found counts the entries that are not directories, and a directory that
// could not be opened or read to its end adds one to Found and to Failed.
// Directories that are left out by MaxDepth or SkipHidden are not counted.
type Report struct {
	Directories int64 // directories listed to their end, root among them
	Found       int64 // files and other entries that are not directories
	Processed   int64 // files for which fn returned a result
	Failed      int64 // files and directories that gave an error
	Abandoned   int64 // files left when the run was cancelled or stopped early
	Bytes       int64 // bytes of content handed to fn
	Skipped     map[SkipReason]int64
	Elapsed     time.Duration
}

// counts is one worker's part of a Report.
type counts struct {
	directories, found, processed, failed, abandoned, bytes int64
	skipped                                                 [len(skipReasons)]int64
}

func (r *Report) add(c *counts) {
	r.Directories += c.directories
	r.Found += c.found
	r.Processed += c.processed
	r.Failed += c.failed
	r.Abandoned += c.abandoned
	r.Bytes += c.bytes
	for i, n := range c.skipped {
		if n > 0 {
			r.Skipped[skipReasons[i]] += n
		}
	}
}
