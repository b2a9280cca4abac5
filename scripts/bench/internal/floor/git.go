//go:build linux

package floor

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/git"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/scripts/internal/fail"
	"github.com/fileproc/fileproc/scripts/internal/record"
	"github.com/fileproc/fileproc/scripts/internal/turns"
)

// git compares with git's commands, in -dir or in a repository of 100,000 files that it makes, and runs with the cache file of
// another clone with full runs.
func (r *run) git() []record.Record {
	command := func(args ...string) ([]byte, error) {
		return exec.CommandContext(r.ctx, "git", append([]string{"-C", r.dir, "--no-optional-locks"}, args...)...).Output()
	}
	if r.dir == "" {
		r.dir, r.Data = r.temp(), "100,000 files in 1,000 directories"
		for i := range 100_000 {
			sub := filepath.Join(r.dir, fmt.Sprintf("d%d/s%d", i/10_000, i/100))
			fail.On(os.MkdirAll(sub, 0o755))
			fail.On(os.WriteFile(filepath.Join(sub, fmt.Sprintf("f%05d.txt", i)), bytes.Repeat([]byte("text"), 100), 0o644))
		}
		fail.Must(command("init", "-q"))
		fail.Must(command("add", "."))
		fail.Must(command("-c", "user.name=bench", "-c", "user.email=bench", "commit", "-q", "-m", "made"))
	}
	unhidden := fileproc.Options{SkipHidden: true}
	tracked := bytes.Count(fail.Must(command("ls-files", "-z")), []byte{0})
	names := func(opts fileproc.Options) turns.Side {
		return turns.Work(func() (files int, bytes int64, err error) {
			for e, err := range fileproc.Walk(r.ctx, r.dir, opts) {
				if err != nil {
					return files, 0, err
				}
				if !e.IsDir() {
					files++
				}
			}
			return files, 0, nil
		}).Side()
	}
	inGit := func(args ...string) turns.Side {
		return turns.Work(func() (int, int64, error) { _, err := command(args...); return tracked, 0, err }).Side()
	}
	changed := turns.Work(func() (int, int64, error) { _, err := git.Changed(r.ctx, r.dir); return tracked, 0, err }).Side()
	clone := filepath.Join(r.temp(), "clone")
	inc := incremental.Options[int]{File: clone + ".cache", Compare: incremental.CompareGit}
	restored := turns.Work(func() (int, int64, error) { return sum(incremental.Process(r.ctx, clone, inc, unhidden, size)) }).Side()
	origin := strings.TrimSpace(string(fail.Must(command("rev-parse", "--absolute-git-dir"))))
	for range 2 {
		fail.On(os.RemoveAll(clone))
		fail.Must(command("clone", "-q", "--shared", origin, clone))
		if _, err := os.Stat(inc.File); err != nil {
			fail.Must(restored.Pass())
		}
	}
	full := turns.Work(func() (int, int64, error) { return sum(fileproc.Process(r.ctx, clone, unhidden, size)) }).Side()
	return r.compare(
		turns.Against("CompareGit in a fresh clone / a full run", restored, full),
		turns.Against("Walk with GitTracked / git ls-files", names(fileproc.Options{GitTracked: true}), inGit("ls-files", "-z")),
		turns.Against("whole with GitTracked / a run that lists", r.fileproc(fileproc.Options{GitTracked: true}), r.fileproc(fileproc.Options{Exclude: []string{".git"}})),
		turns.Against("git.Changed / git status", changed, inGit("status", "--porcelain")))
}
