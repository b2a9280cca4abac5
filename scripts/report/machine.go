package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/fileproc/fileproc/scripts/internal/record"
)

// machine returns records that describe the machine, without names of hosts and users.
func machine(data string) []record.Record {
	return []record.Record{
		{Table: "machine", Who: "Date", Text: time.Now().UTC().Format(time.DateOnly)},
		{Table: "machine", Who: "Go", Text: runtime.Version()},
		{Table: "machine", Who: "Kernel", Text: kernel()},
		{Table: "machine", Who: "CPU", Text: cpuModel()},
		{Table: "machine", Who: "Cores", Text: fmt.Sprint(runtime.NumCPU())},
		{Table: "machine", Who: "File system", Text: fileSystem(filepath.Join(data, "tickets_flat_5k"))},
	}
}

func kernel() string {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return runtime.GOOS + " " + strings.TrimSpace(string(release))
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value) + ", " + runtime.GOARCH
		}
	}
	return runtime.GOARCH
}

// fileSystem returns the file system type of the mount that contains dir, which is the one with the longest matching path.
func fileSystem(dir string) string {
	dir, err := filepath.EvalSymlinks(dir)
	if err == nil {
		dir, err = filepath.Abs(dir)
	}
	mounts, errMounts := os.ReadFile("/proc/self/mounts")
	if err != nil || errMounts != nil {
		return "unknown"
	}
	longest, kind := "", "unknown"
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

func canDropCaches() bool {
	f, err := os.OpenFile("/proc/sys/vm/drop_caches", os.O_WRONLY, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
