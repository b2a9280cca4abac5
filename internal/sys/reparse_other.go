//go:build !windows

package sys

import "io/fs"

const NoFollow = 0

func IsReparsePoint(fs.FileInfo) bool { return false }
func IsRemote(fs.FileInfo) bool       { return false }
