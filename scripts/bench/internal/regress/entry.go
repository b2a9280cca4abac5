//go:build linux

package regress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// schema changes when an older entry can no longer be compared: other fields, another floor, another way to sample.
const schema = 1

// A meta says where and of what an entry is. It names no host, no user and no path.
type meta struct {
	Schema     int    `json:"schema"`
	Time       string `json:"time"` // UTC
	Tag        string `json:"tag,omitempty"`
	BuildTags  tags   `json:"build_tags,omitempty"`
	Go         string `json:"go"`
	Platform   string `json:"platform"`
	Kernel     string `json:"kernel"`
	CPU        string `json:"cpu"`
	Cores      int    `json:"cores"`
	Filesystem string `json:"filesystem"`
	IOUring    bool   `json:"io_uring"` // whether it is allowed
	Commit     string `json:"commit"`
	Dirty      bool   `json:"dirty"`
}

// An entry is one line of history.jsonl or baseline.jsonl.
type entry struct {
	meta
	Cases map[string]*series `json:"cases"`
	// Counts are those of some cases. Entries older than this field do not have it.
	Counts map[string]counts `json:"counts,omitempty"`
}

func (repo repository) meta(ctx context.Context, cpu, tag string, with tags) (meta, error) {
	m := meta{Schema: schema, Time: time.Now().UTC().Format(time.RFC3339), Tag: tag, BuildTags: with, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, CPU: cpu, Cores: runtime.GOMAXPROCS(0)}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel = unix.ByteSliceToString(name.Release[:])
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Join(string(repo), ".data"), &st); err != nil {
		return m, err
	}
	m.Filesystem = filesystemName(int64(st.Type))
	m.IOUring = hasIOUring()
	m.Commit, m.Dirty = repo.revision(ctx)
	return m, nil
}

// hasIOUring reports whether the kernel lets this process have a ring: containers often forbid it.
func hasIOUring() bool {
	var params [120]byte // struct io_uring_params
	fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	if errno == 0 {
		unix.Close(int(fd))
	}
	return errno == 0
}

func filesystemName(magic int64) string {
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
		unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlayfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.NFS_SUPER_MAGIC: "nfs"}
	if name, ok := names[magic]; ok {
		return name
	}
	return fmt.Sprintf("%#x", uint32(magic))
}

// sameMachine reports whether times of both can be expected to be alike.
func (m meta) sameMachine(o meta) bool {
	return m.CPU == o.CPU && m.Cores == o.Cores && m.Filesystem == o.Filesystem && m.Platform == o.Platform && m.IOUring == o.IOUring
}

// sameCalls reports whether the same code makes the same system calls on both: processor and cores do not matter.
func (m meta) sameCalls(o meta) bool {
	return m.Filesystem == o.Filesystem && m.Platform == o.Platform && m.IOUring == o.IOUring
}

func (m meta) String() string {
	dirty := ""
	if m.Dirty {
		dirty = " with changes"
	}
	ring := "io_uring"
	if !m.IOUring {
		ring = "no io_uring"
	}
	with := ""
	if m.BuildTags != "" {
		with = fmt.Sprintf(" with %v", m.BuildTags)
	}
	return fmt.Sprintf("%.12s%s of %s (%s%s, %s, %d cores, Linux %s, %s, %s)", m.Commit, dirty, m.Time, m.Go, with, m.CPU, m.Cores, m.Kernel, m.Filesystem, ring)
}

const (
	baselineFile  = "baseline.jsonl"
	historyFile   = "history.jsonl"
	baselineKeeps = 5 // entries
)

func (repo repository) records(name string) string {
	return filepath.Join(string(repo), ".benchmarks", name)
}

// readEntries returns the entries of a file, the newest last.
func (repo repository) readEntries(name string) ([]entry, error) {
	data, err := os.ReadFile(repo.records(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var entries []entry
	line := 0
	for text := range bytes.Lines(data) {
		line++
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return nil, fmt.Errorf(".benchmarks/%s, line %d: %w", name, line, err)
		}
		if e.Schema != schema {
			return nil, fmt.Errorf(".benchmarks/%s, line %d, has schema version %d, and this command compares version %d: remove the file and measure again", name, line, e.Schema, schema)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// appendEntry adds an entry. If keep is not 0, the file keeps at most that many of those with the same build tags, the newest.
func (repo repository) appendEntry(name string, e entry, keep int) error {
	entries, err := repo.readEntries(name)
	if err != nil {
		return err
	}
	entries = append(entries, e)
	if keep > 0 {
		same := 0
		for i := len(entries) - 1; i >= 0; i-- {
			if entries[i].BuildTags != e.BuildTags {
				continue
			}
			if same++; same > keep {
				entries = slices.Delete(entries, i, i+1)
			}
		}
	}
	var text bytes.Buffer
	for _, e := range entries {
		if err := json.NewEncoder(&text).Encode(e); err != nil {
			return err
		}
	}
	tmp := repo.records(name + ".tmp")
	if err := os.WriteFile(tmp, text.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, repo.records(name))
}
