//go:build !unix && !windows

package sys

import (
	"io/fs"
	"os"
	"time"
)

const NoFollow = 0

func IsReparsePoint(fs.FileInfo) bool { return false }
func IsRemote(fs.FileInfo) bool       { return false }

func addSystemStat(*Stat, fs.FileInfo) {}

// ProcessorTime returns the elapsed time: this system does not report the processor time of a process.
func ProcessorTime() time.Duration { return time.Since(begun) }

// WaitReadable does not wait: the read does.
func WaitReadable(*os.File, time.Duration) bool { return true }
