package sys

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// MemoryOfGroup returns the lowest limit, in bytes, that this process's control groups set for memory. Only Linux has such groups.
func MemoryOfGroup() int64 {
	if runtime.GOOS != "linux" {
		return math.MaxInt64
	}
	return groupLimit(os.DirFS("/"))
}

// groupLimit returns the lowest limit of the memory groups that proc/self/cgroup names,
// and of the groups above them, or math.MaxInt64. In a container the path is often that
// of the host, and only the group at the mount's root exists.
func groupLimit(root fs.FS) int64 {
	lowest := int64(math.MaxInt64)
	groups, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return lowest
	}
	for line := range strings.Lines(string(groups)) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		controllers, dir, _ := strings.Cut(rest, ":")
		mount, file := "sys/fs/cgroup", "memory.max" // version 2
		if controllers != "" {
			if !slices.Contains(strings.Split(controllers, ","), "memory") {
				continue
			}
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for dir = path.Clean("/" + dir); ; dir = path.Dir(dir) {
			if text, err := fs.ReadFile(root, path.Join(mount, dir, file)); err == nil {
				// "max" is no number, and means no limit.
				if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
					lowest = min(lowest, limit)
				}
			}
			if dir == "/" {
				break
			}
		}
	}
	return lowest
}
