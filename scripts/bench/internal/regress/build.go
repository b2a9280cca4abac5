//go:build linux

package regress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A repository is the root directory of the clone.
type repository string

// benchFiles are the test files that a benchmark binary is built with: always those of the working tree, so that two
// revisions are measured by the same benchmark.
var benchFiles = []string{"bench_test.go", "bench_linux_test.go"}

// A source is the package at some revision.
type source struct {
	dir     string
	tags    tags
	planted string // unless empty, a file that takes the place of visit.go
	hooks   bool   // build with the source's own testHooks
}

const plantedFile = "visit.go"

// build makes the benchmark binary of a source. Two sources that are equal give equal binaries, wherever they lie.
func (repo repository) build(ctx context.Context, src source, binary string) error {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	tests, err := filepath.Glob(filepath.Join(src.dir, "*_test.go"))
	if err != nil {
		return err
	}
	for _, name := range tests {
		if hook, err := filepath.Match(testHooks, filepath.Base(name)); err != nil || src.hooks && hook {
			continue
		}
		overlay.Replace[name] = "" // as if it were not there
	}
	for _, name := range benchFiles {
		overlay.Replace[filepath.Join(src.dir, name)] = filepath.Join(string(repo), name)
	}
	if src.planted != "" {
		overlay.Replace[filepath.Join(src.dir, plantedFile)] = src.planted
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	if err := os.WriteFile(binary+".overlay", text, 0o644); err != nil {
		return err
	}
	args := []string{"test", "-c", "-trimpath", "-buildvcs=false", "-overlay", binary + ".overlay", "-o", binary}
	if src.tags != "" {
		args = append(args, "-tags", string(src.tags))
	}
	_, err = output(ctx, src.dir, "go", append(args, ".")...)
	return err
}

// buildRevision makes the benchmark binary of a revision and, unless counted is empty, the one whose calls are counted. That
// one is not made of a revision that cannot be counted.
func (repo repository) buildRevision(ctx context.Context, rev string, with tags, binary, counted string) error {
	dir := binary + ".tree"
	remove, err := repo.checkout(ctx, rev, dir)
	if err != nil {
		return err
	}
	defer remove()
	if err := with.matter(ctx, dir); err != nil {
		return fmt.Errorf("%s: %w", rev, err)
	}
	src := source{dir: dir, tags: with}
	err = repo.build(ctx, src, binary)
	if err == nil && counted != "" {
		if err = repo.buildCounted(ctx, src, counted); errors.Is(err, errNoHooks) {
			fmt.Printf("no counts are compared: in %s %v\n", rev, err)
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("%s cannot be measured with the benchmarks of today: %w", rev, err)
	}
	return nil
}

func (repo repository) commit(ctx context.Context, rev string) (string, error) {
	commit, err := output(ctx, string(repo), "git", "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("unknown revision %q: want baseline, prev or what git knows", rev)
	}
	return commit, nil
}

// checkout puts a revision into a directory of its own until the function it returns is called.
func (repo repository) checkout(ctx context.Context, rev, dir string) (remove func(), err error) {
	commit, err := repo.commit(ctx, rev)
	if err != nil {
		return nil, err
	}
	if _, err := output(ctx, string(repo), "git", "worktree", "add", "--detach", dir, commit); err != nil {
		return nil, err
	}
	return func() {
		// Also after an interrupt, so not with ctx.
		output(context.Background(), string(repo), "git", "worktree", "remove", "--force", dir)
	}, nil
}

// revision returns the commit, and whether the working tree differs from it. The records themselves do not count: the
// entries of a baseline are of one commit. Without git no commit is known, which is as good as a dirty tree.
func (repo repository) revision(ctx context.Context) (commit string, dirty bool) {
	commit, err := output(ctx, string(repo), "git", "rev-parse", "HEAD")
	if err != nil {
		return "unknown", true
	}
	status, err := output(ctx, string(repo), "git", "status", "--porcelain", "--", ".", ":!.benchmarks")
	return commit, err != nil || status != ""
}

// output runs a program and returns what it printed. The error is one line: the first that the program complained with.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err == nil {
		return strings.TrimSpace(stdout.String()), nil
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return "", err
	}
	for line := range strings.Lines(stderr.String() + stdout.String()) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return "", fmt.Errorf("%s %s: %s", name, args[0], line)
		}
	}
	return "", fmt.Errorf("%s %s: %w", name, args[0], err)
}
