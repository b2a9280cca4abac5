//go:build unix

// Mutants plants mistakes in the module, one at a time, and reports those that no test notices.
//
//	go run ./mutants [-run REGEXP]                          the known mistakes of mutants.txt
//	go run ./mutants [FLAG]... PACKAGE_DIRECTORY...         mistakes by syntax, of every kind in plant.go
//
// One build has all mistakes, and an environment variable chooses one. A mistake by syntax runs with the tests that reach it in a state in
// which it makes a difference. What nobody could notice is not planted: see planter.operator. mutants.txt says how to add a known mistake.
package main

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/tools/go/packages"

	"github.com/fileproc/fileproc/scripts/internal/commands"
	"github.com/fileproc/fileproc/scripts/internal/fail"
)

const importMutant = `; import "github.com/fileproc/fileproc/internal/mutant"`

//go:embed mutant/mutant.go
var mutantSource []byte

// A plan is a mistake, and the tests that should notice it. Its number chooses it.
type plan struct {
	id         int
	name, file string
	line       int
	survives   string // why no test notices it
	dir, tests string // of a known mistake
	covering   []*test
}

func (p *plan) String() string {
	return fmt.Sprintf("%s:%d: %s", filepath.Base(p.file), p.line, p.name)
}

// A test is one of those in dir, or several that run together.
type test struct {
	dir, name string
	took      time.Duration
}

type tool struct {
	root, tmp string
	plans     []*plan
	sources   []*source
	binaries  map[string]string // of the tests in a directory
}

func main() {
	log.SetFlags(0)
	only := flag.String("run", "", "plant only the mistakes whose place and name match this `regexp`")
	with := flag.String("with", "", "run the tests in these `directories`, too, separated by commas")
	tests := flag.String("tests", "^(Test|Example|Fuzz)", "run only the tests that match this `regexp`")
	since := flag.String("since", "", "plant mistakes only in functions that were changed after this `commit`")
	sample := flag.Int("sample", math.MaxInt, "plant only `N` mistakes, chosen at random")
	flag.Parse()
	t := tool{binaries: map[string]string{}}
	err := fail.Try(func() {
		t.do(regexp.MustCompile(*only), strings.FieldsFunc(*with, func(r rune) bool { return r == ',' }), *tests, *since, *sample)
	})
	os.RemoveAll(t.tmp)
	if err != nil {
		log.Fatal(err)
	}
}

func (t *tool) do(only *regexp.Regexp, with []string, tests, since string, sample int) {
	t.root, t.tmp = fail.Must(filepath.Abs("..")), fail.Must(os.MkdirTemp("", "mutants"))
	if flag.NArg() == 0 {
		t.known(only)
		return
	}
	t.plantAll(flag.Args(), since)
	for _, dir := range slices.Concat(flag.Args(), with) {
		t.build(filepath.Join(t.root, dir))
	}
	t.profile(tests)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(t.plans), func(i, k int) { t.plans[i], t.plans[k] = t.plans[k], t.plans[i] })
	t.plans = slices.DeleteFunc(t.plans, func(p *plan) bool { return !only.MatchString(p.String()) })
	t.plans = t.plans[:min(sample, len(t.plans))]
	live := t.live(false)
	fmt.Printf("%d of %d mistakes are not noticed: %.1f %%\n", len(live), len(t.plans), 100*float64(len(live))/float64(max(1, len(t.plans))))
}

// known runs each mistake of the list with the tests that it names.
func (t *tool) known(only *regexp.Regexp) {
	t.sources = fail.Must(plantList(t.root, parse(only), &t.plans))
	sound, skipped := map[test]*test{}, map[test]bool{}
	for _, p := range t.plans {
		key := test{dir: p.dir, name: p.tests}
		if sound[key] == nil {
			start := time.Now()
			t.build(p.dir)
			out, passed := t.run(0, &key, 2*time.Minute)
			fail.If(!passed || bytes.Contains(out, []byte("no tests to run")), "%s: without the mistake: %s", p.name, out)
			sound[key], skipped[key] = &test{p.dir, p.tests, time.Since(start)}, !bytes.Contains(out, []byte("--- PASS"))
		}
		if p.covering = []*test{sound[key]}; skipped[key] {
			p.survives = "its tests are skipped here"
		}
	}
	live := t.live(true)
	wrong := 0
	for _, p := range t.plans {
		lives := slices.Contains(live, p)
		if lives && p.survives == "" { // once more alone, since other tests may cause the event that a test waits for, as a mount does
			lives = !t.killed(p)
		}
		if lives != (p.survives != "") {
			fmt.Printf("not as listed: %s\n", p)
			wrong++
		}
	}
	fail.If(wrong > 0, "%d of %d mistakes are not as listed", wrong, len(t.plans))
	fmt.Printf("%d mistakes are as listed\n", len(t.plans))
}

// plantAll plants mistakes by syntax in the packages of dirs.
func (t *tool) plantAll(dirs []string, since string) {
	wanted := func(string, int, int) bool { return true }
	if since != "" {
		changed := changedLines(t.root, since)
		wanted = func(file string, from, to int) bool {
			return slices.ContainsFunc(changed[file], func(l [2]int) bool { return l[0] <= to && from <= l[1] })
		}
	}
	for _, dir := range dirs {
		pkgs := fail.Must(packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: filepath.Join(t.root, dir)}, "."))
		fail.If(packages.PrintErrors(pkgs) > 0, "%s cannot be loaded", dir)
		t.sources = append(t.sources, plant(pkgs[0], wanted, &t.plans)...)
	}
}

// live returns the mistakes that no test notices. It prints each of them, or each mistake if all is set, as soon as it is decided.
func (t *tool) live(all bool) (live []*plan) {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for _, p := range t.plans {
		g.Go(func() error {
			start := time.Now()
			killed := t.killed(p)
			mu.Lock()
			defer mu.Unlock()
			outcome := "lives"
			switch {
			case killed && !all:
				return nil
			case killed:
				outcome = "killed"
			case len(p.covering) == 0:
				outcome = "no test comes to it"
			}
			if !killed {
				live = append(live, p)
			}
			fmt.Printf("%4.0f s  %s: %s\n", time.Since(start).Seconds(), p, strings.TrimSuffix(outcome+": "+p.survives, ": "))
			return nil
		})
	}
	_ = g.Wait()
	return live
}

// killed reports whether a test notices the mistake. Quick tests run first, together.
func (t *tool) killed(p *plan) bool {
	slices.SortFunc(p.covering, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	for rest := p.covering; len(rest) > 0; {
		several := *rest[0]
		for rest = rest[1:]; len(rest) > 0 && rest[0].dir == several.dir && several.took+rest[0].took < time.Second; rest = rest[1:] {
			several.name += "|" + rest[0].name
			several.took += rest[0].took
		}
		if _, passed := t.run(p.id, &several, 10*time.Second+5*several.took); !passed {
			return true
		}
	}
	return false
}

// build builds the tests in a directory with all mistakes, once for each directory. The first call writes the sources.
func (t *tool) build(dir string) {
	if t.binaries[dir] != "" {
		return
	}
	overlay := filepath.Join(t.tmp, "overlay.json")
	if len(t.binaries) == 0 {
		replace := map[string]string{}
		write := func(name string, text []byte) {
			replace[name] = filepath.Join(t.tmp, fmt.Sprintf("%d.go", len(replace)))
			fail.On(os.WriteFile(replace[name], text, 0o666))
		}
		write(filepath.Join(t.root, "internal/mutant/mutant.go"), mutantSource)
		for _, s := range t.sources {
			write(s.name, s.planted())
		}
		fail.On(os.WriteFile(overlay, fail.Must(json.Marshal(map[string]any{"Replace": replace})), 0o666))
	}
	t.binaries[dir] = filepath.Join(t.tmp, fmt.Sprintf("%d.test", len(t.binaries)))
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", t.binaries[dir], ".")
	cmd.Dir = dir // which may be in a module of its own
	out, err := cmd.CombinedOutput()
	fail.If(err != nil, "%s: %w: %s", dir, err, out)
}

// run runs tests with a mistake, and reports whether they pass in time.
func (t *tool) run(id int, tests *test, limit time.Duration, env ...string) (out []byte, passed bool) {
	ctx, stop := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer stop()
	cmd := exec.CommandContext(ctx, t.binaries[tests.dir], "-test.run=^("+tests.name+")$", "-test.v", "-test.failfast", "-test.timeout="+limit.String(), "-test.short")
	cmd.Dir, cmd.Env, cmd.WaitDelay = tests.dir, append(append(os.Environ(), fmt.Sprint("MUTANT=", id)), env...), time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	kill := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // also the processes that a test has started
	cmd.Cancel = kill
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = kill()
	}
	return out, err == nil
}

// profile runs each test alone, and notes which mistakes it reaches.
func (t *tool) profile(match string) {
	start := time.Now()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	n := 0
	for dir, binary := range t.binaries {
		cmd := exec.Command(binary, "-test.list", match)
		cmd.Dir = dir
		names, err := cmd.Output()
		fail.If(err != nil && !os.IsNotExist(err), "%s: %w", dir, err) // a package may have no tests
		for name := range strings.FieldsSeq(string(names)) {
			n++
			test, hits := &test{dir: dir, name: name}, filepath.Join(t.tmp, fmt.Sprint("hits", n))
			g.Go(func() error {
				if err := os.WriteFile(hits, make([]byte, len(t.plans)+1), 0o666); err != nil {
					return err
				}
				defer os.Remove(hits)
				start := time.Now()
				out, passed := t.run(0, test, 5*time.Minute, "MUTANT_HITS="+hits)
				test.took = time.Since(start)
				if !passed {
					log.Printf("left out: %s fails without a mistake: %s", name, out[max(0, len(out)-1000):])
					return nil
				}
				hit, err := os.ReadFile(hits)
				mu.Lock()
				defer mu.Unlock()
				for _, p := range t.plans {
					if err == nil && hit[p.id] != 0 {
						p.covering = append(p.covering, test)
					}
				}
				return err
			})
		}
	}
	fail.On(g.Wait())
	log.Printf("%d mistakes; %d tests, each alone, took %.0f s", len(t.plans), n, time.Since(start).Seconds())
}

// changedLines returns which lines of which files were changed after a commit.
func changedLines(root, since string) map[string][][2]int {
	out := fail.Must(commands.Output(context.Background(), root, "git", "diff", "-U0", "--no-ext-diff", "--no-prefix", since, "--", "*.go"))
	changed, file := map[string][][2]int{}, ""
	for _, m := range regexp.MustCompile(`(?m)^\+\+\+ (.*)|^@@ -\S+ \+(\d+)(?:,(\d+))? @@`).FindAllStringSubmatch(out, -1) {
		if m[1] != "" {
			file = filepath.Join(root, m[1])
			continue
		}
		from, _ := strconv.Atoi(m[2])
		n, _ := strconv.Atoi(cmp.Or(m[3], "1"))
		changed[file] = append(changed[file], [2]int{from, from + n})
	}
	return changed
}
