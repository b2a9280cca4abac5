// Package host describes the machine of a measurement, without names of hosts and users.
package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Machine returns all of this on a line, with the file system of dir.
func Machine(dir string) string {
	parts := []string{runtime.Version(), strings.TrimSpace(runtime.GOOS + " " + Kernel()), CPU(), runtime.GOARCH,
		fmt.Sprint(runtime.NumCPU(), " cores"), FileSystem(dir)}
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", ")
}

// Kernel returns the release of the kernel, if /proc says it.
func Kernel() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(release))
}

// CPU returns the model of the processor, if /proc says it.
func CPU() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// FileSystem returns the type of the file system that contains dir, if /proc says it: that of the mount with the longest
// matching path.
func FileSystem(dir string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	mounts, errMounts := os.ReadFile("/proc/self/mounts")
	if errors.Join(err, errMounts) != nil {
		return ""
	}
	longest, kind := "", ""
	for line := range strings.Lines(string(mounts)) {
		field := strings.Fields(line)
		if len(field) < 3 || len(field[1]) < len(longest) {
			continue
		}
		if rel, err := filepath.Rel(field[1], dir); err == nil && filepath.IsLocal(rel) {
			longest, kind = field[1], field[2]
		}
	}
	return kind
}
