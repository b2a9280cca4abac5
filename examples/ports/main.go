// Command ports puts fileproc into three programs that others wrote, in place of their walking part, and compares them
// with the originals: by their own tests, by what they print and write, and by the time they take. See README.md.
//
//	go run . [-only gofumpt,...] [-against goroot,...] [-do test,compare,time]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/build"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A side is a program as it is, or with fileproc.
type side struct{ dir, binary string }

// sides are the original and the port, in this order.
type sides [2]side

func main() {
	only := flag.String("only", "gofumpt,gitcha,addlicense", "`programs`")
	against := flag.String("against", "goroot,modcache,tickets", "`trees`: Go's source, the module cache, 100,000 tickets in one directory")
	do := flag.String("do", "test,compare,time", "`what` to do; time writes the table in README.md")
	flag.Parse()
	work, err := os.MkdirTemp("", "ports")
	if err == nil {
		err = errors.Join(os.Chmod(work, 0o777), os.Setenv("TMPDIR", work)) // some tests run as another user, and leave files
	}
	if err == nil {
		err = errors.Join(all(work, *only, *against, *do), os.RemoveAll(work))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ports:", err)
		os.Exit(1)
	}
}

func all(work, only, against, do string) error {
	is := func(list, name string) bool { return slices.Contains(strings.Split(list, ","), name) }
	trees := map[string]string{}
	for tree, find := range map[string]func(work string) (string, error){"goroot": goSource, "modcache": moduleCache, "tickets": tickets} {
		if is(against, tree) {
			dir, err := find(work)
			if err != nil {
				return err
			}
			trees[tree] = dir
		}
	}
	for _, p := range ports {
		if !is(only, p.name) {
			continue
		}
		s, lines, err := p.build(filepath.Join(work, p.name))
		if err == nil {
			fmt.Printf("%s: %d lines dropped, %d lines of ours\n", p.name, lines[0], lines[1])
		}
		if err == nil && is(do, "test") {
			err = p.test(s)
		}
		for _, tree := range slices.Sorted(maps.Keys(trees)) {
			for _, r := range p.runs {
				if err == nil && is(do, "compare") && (!r.rewrites || tree == "goroot") {
					err = r.compare(p.name, s, trees[tree], work)
				}
				if err == nil && is(do, "time") && r.timed {
					err = r.time(fmt.Sprintf("%s `%s` | %s | %d → %d", p.name, r.args, tree, lines[0], lines[1]), s, trees[tree])
				}
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func goSource(string) (string, error) {
	dir, err := command(".", "go", "env", "GOROOT")
	return filepath.Join(dir, "src"), err
}

func moduleCache(string) (string, error) { return command(".", "go", "env", "GOMODCACHE") }

// tickets makes a repository, since gitcha looks at ignore files only there.
func tickets(work string) (string, error) {
	dir := filepath.Join(work, "tickets_flat_100k")
	_, err := command("../../scripts", "go", "run", "./tickets", "-out", work, "-layout", "flat", "-count", "100k")
	if err == nil {
		_, err = command(dir, "git", "init", "-q")
	}
	return dir, errors.Join(err, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("*7.*\n"), 0o666))
}

// command runs a command in a directory, and returns what it prints. An error has that, too.
func command(dir string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod -buildvcs=false")
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// build makes both sides in work, and returns how many lines are dropped from the original, and of ours are in the port.
func (p *port) build(work string) (s sides, lines [2]int, err error) {
	var module struct{ Dir, GoVersion string }
	read := func(args ...string) {
		out, failed := command("../..", args...)
		if err = errors.Join(err, failed); err == nil {
			err = json.Unmarshal([]byte(out), &module)
		}
	}
	read("go", "list", "-mod=readonly", "-m", "-json")
	root, language := module.Dir, module.GoVersion
	read("go", "mod", "download", "-json", p.module+"@"+p.version)
	for i, name := range []string{"before", "after"} {
		if err != nil {
			break
		}
		dir := filepath.Join(work, name, p.name) // tests of gitcha search the directory above
		s[i] = side{dir, filepath.Join(work, name, "program.exe")}
		edit := []string{"go", "mod", "edit", "-go=" + language}
		err = os.CopyFS(dir, os.DirFS(module.Dir))
		if err == nil && name == "after" {
			edit = append(edit, "-require=github.com/fileproc/fileproc@v0.0.0", "-replace=github.com/fileproc/fileproc="+root)
			lines[0], err = dropAll(dir, p.dropped)
		}
		if err == nil {
			lines[1], err = copyOurs(dir, p.ours, name == "after")
		}
		for _, args := range [][]string{edit, {"git", "init", "-q"}, {"go", "build", "-o", s[i].binary, p.command}} {
			if err == nil {
				_, err = command(dir, args...)
			}
		}
	}
	return s, lines, err
}

// dropAll removes declarations from the package in dir, and returns how many lines that are.
func dropAll(dir string, declarations []string) (lines int, err error) {
	names := map[string]bool{}
	for _, d := range declarations {
		names[d] = true
	}
	p, err := build.ImportDir(dir, 0)
	if err != nil {
		return 0, err
	}
	for _, f := range p.GoFiles {
		src, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			return 0, err
		}
		left, n, err := drop(src, names)
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, f), left, 0o666)); err != nil {
			return 0, fmt.Errorf("%s: %w", f, err)
		}
		lines += n
	}
	if len(names) > 0 {
		err = fmt.Errorf("the package has no declaration of %s alone", strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	return lines, err
}

// copyOurs copies our files, or without the port only a command in a directory below. It returns the lines of the port.
func copyOurs(to, from string, port bool) (lines int, err error) {
	err = fs.WalkDir(os.DirFS(from), ".", func(name string, d fs.DirEntry, err error) error {
		ofPort := filepath.Dir(name) == "."
		if err != nil || d.IsDir() || ofPort && !port {
			return err
		}
		src, err := os.ReadFile(filepath.Join(from, name))
		if ofPort {
			lines += bytes.Count(src, []byte("\n"))
		}
		to := filepath.Join(to, name)
		return errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o777), os.WriteFile(to, src, 0o666))
	})
	return lines, err
}

var outcome = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): \S+`)

// test runs the module's own tests on both sides. The same must pass.
func (p *port) test(s sides) error {
	var before []string
	for _, side := range s {
		run := []string{"go", "test", "-count=1", "-v", "./..."}
		if p.notAsRoot && os.Getuid() == 0 {
			if _, err := command(side.dir, "go", "test", "-c", "-o", "package.test", "."); err != nil {
				return err
			}
			run = []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "./package.test", "-test.v"}
		}
		out, err := command(side.dir, run...)
		outcomes := outcome.FindAllString(out, -1)
		for i := range outcomes {
			outcomes[i] = strings.TrimSpace(outcomes[i])
		}
		slices.Sort(outcomes)
		failed := slices.DeleteFunc(slices.Clone(outcomes), func(o string) bool { return !strings.Contains(o, "FAIL") })
		if len(outcomes) == 0 || err != nil && len(failed) == 0 || before != nil && !slices.Equal(outcomes, before) {
			return fmt.Errorf("its tests: %w; before: %q; now: %q\n%s", err, before, outcomes, out)
		}
		before = outcomes
		fmt.Printf("%s: %d of its tests ran, %d failed %q\n", side.dir, len(outcomes), len(failed), failed)
	}
	return nil
}

var logTime = regexp.MustCompile(`(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d `)

// compare runs both sides in a tree, and compares what they print, their exit status, and the files that they have rewritten.
func (r run) compare(name string, s sides, dir, work string) error {
	var printed [2][]string
	copies := [2]string{filepath.Join(work, "a"), filepath.Join(work, "b")}
	for i, side := range s {
		cmd := exec.Command(side.binary, strings.Fields(r.args)...)
		if cmd.Dir = dir; r.rewrites {
			cmd.Dir = copies[i]
			defer os.RemoveAll(cmd.Dir)
			if err := os.CopyFS(cmd.Dir, os.DirFS(dir)); err != nil {
				return err
			}
		}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); cmd.ProcessState == nil {
			return err
		}
		for _, text := range []string{stdout.String(), logTime.ReplaceAllString(stderr.String(), "")} {
			lines := strings.SplitAfter(text, "\n")
			if r.unsorted {
				slices.Sort(lines)
			}
			printed[i] = append(append(printed[i], lines...), "end of a stream")
		}
		printed[i] = append(printed[i], cmd.ProcessState.String())
	}
	call := fmt.Sprintf("%s %s in %s", name, r.args, dir)
	for i, was := range printed[0] {
		if i >= len(printed[1]) || was != printed[1][i] {
			return fmt.Errorf("%s: line %d was %q, and with fileproc the rest is %.300q", call, i+1, was, printed[1][min(i, len(printed[1])):])
		}
	}
	if r.rewrites {
		if _, err := command(work, "git", "diff", "--no-index", "--stat", copies[0], copies[1]); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	fmt.Printf("%s: the same, %d lines\n", call, len(printed[0])-5)
	return nil
}

const dropCaches = "/proc/sys/vm/drop_caches"

// time lets both sides take turns in a tree, warm and cold, and writes a row of the table, which begins with head.
func (r run) time(head string, s sides, dir string) error {
	row := "| " + head + " |"
	for _, cold := range []bool{false, true} {
		rounds := 6
		if cold {
			rounds = 3
		}
		var wall, cpu [2][]time.Duration
		for round := range rounds {
			for turn := range s {
				i := (turn + round) % 2
				cmd := exec.Command(s[i].binary, strings.Fields(r.args)...)
				cmd.Dir = dir
				if cold {
					if err := chill(s[i].binary); err != nil {
						fmt.Println("cold: skipped:", err)
						break
					}
				}
				start := time.Now()
				if err := cmd.Run(); cmd.ProcessState == nil {
					return err
				}
				if cold || round > 0 { // before, not all may be in memory
					wall[i] = append(wall[i], time.Since(start))
					cpu[i] = append(cpu[i], cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
				}
			}
		}
		if !cold {
			row += " " + ratio(cpu) + " |"
		}
		row += " " + ratio(wall) + " |"
	}
	fmt.Println(row)
	commit, err := command(".", "git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return err
	}
	page, err := os.ReadFile("README.md")
	if err == nil {
		stamp := fmt.Sprintf("%s, %s, %s, %s, %s, %d cores", commit, time.Now().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
		page, err = fill(page, row, stamp)
	}
	if err == nil {
		err = os.WriteFile("README.md", page, 0o666)
	}
	return err
}

// chill takes all files but the program from memory.
func chill(program string) error {
	if _, err := command(".", "sync"); err != nil {
		return err
	}
	err := os.WriteFile(dropCaches, []byte("3"), 0)
	_, read := os.ReadFile(program)
	return errors.Join(err, read)
}

// ratio returns the medians of both sides in seconds, and what the second is of the first.
func ratio(of [2][]time.Duration) string {
	var m [2]float64
	for i, all := range of {
		if len(all) == 0 {
			return "–"
		}
		slices.Sort(all)
		m[i] = all[len(all)/2].Seconds()
	}
	return fmt.Sprintf("%.2f → %.2f s, **%.2f**", m[0], m[1], m[1]/m[0])
}

var table = regexp.MustCompile(`(?s)(<!-- report: ports -->\n\n[^\n]*\n[^\n]*\n)(.*?)\n[^|\n]*\n\n<!-- end -->`)

// fill replaces the row of the same program and tree in the page's table, or adds one, and the line below.
func fill(page []byte, row, stamp string) ([]byte, error) {
	m := table.FindSubmatchIndex(page)
	if m == nil {
		return nil, errors.New("README.md has no table between the lines report: ports and end")
	}
	head := func(row string) string { return strings.Join(strings.SplitN(row, "|", 4)[:3], "|") }
	rows := strings.FieldsFunc(string(page[m[4]:m[5]]), func(c rune) bool { return c == '\n' })
	if i := slices.IndexFunc(rows, func(r string) bool { return head(r) == head(row) }); i >= 0 {
		rows[i] = row
	} else {
		rows = append(rows, row)
	}
	return fmt.Appendf(nil, "%s%s\n\n%s\n\n<!-- end -->%s", page[:m[3]], strings.Join(rows, "\n"), stamp, page[m[1]:]), nil
}
