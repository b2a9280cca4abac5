//go:build unix

// Mutants plants mistakes in the module, one at a time, and reports those that no test notices.
//
//	go run ./mutants [-run REGEXP]                          the known mistakes of mutants.txt
//	go run ./mutants [FLAG]... PACKAGE_DIRECTORY...         mistakes by syntax, of every kind that plant.go has
//
// All of them are in one build: an environment variable chooses one. A mistake by syntax runs with the tests that come to it in a
// state in which it makes a difference. mutants.txt says how to add a known one.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
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
)

const importMutant = `; import "github.com/fileproc/fileproc/internal/mutant"`

//go:embed mutant/mutant.go
var mutantSource []byte

// A plan is a mistake and what is to notice it: the tests of one directory, or those that come to it.
type plan struct {
	name, file string
	line       int
	survives   string // why no test notices it
	dir, tests string
	cannot     string // why it cannot be planted
	covering   []*test
}

type test struct {
	bin  *binary
	name string
	took time.Duration
}

// A binary has the tests of the package in dir.
type binary struct{ dir, path string }

type tool struct {
	root, tmp string
	plans     []*plan
	sources   []*source
	full      bool
	tests     string // a regexp, for mistakes by syntax
}

func main() {
	log.SetFlags(0)
	only := flag.String("run", "", "plant only the mistakes whose function and name match this `regexp`")
	with := flag.String("with", "", "run the tests in these `directories`, too, separated by commas")
	tests := flag.String("tests", "", "run only the tests that match this `regexp`")
	since := flag.String("since", "", "plant mistakes only in functions that were changed after this `commit`")
	sample := flag.Int("sample", 0, "plant only `N` mistakes, chosen at random")
	full := flag.Bool("full", false, "run whole tests, not those of -short")
	flag.Parse()
	t := tool{full: *full, tests: *tests}
	t.root, _ = filepath.Abs("..")
	var err error
	if t.tmp, err = os.MkdirTemp("", "mutants"); err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(t.tmp)
	pattern := regexp.MustCompile(*only)
	if flag.NArg() == 0 {
		err = t.known(pattern)
	} else {
		err = t.bySyntax(flag.Args(), strings.FieldsFunc(*with, func(r rune) bool { return r == ',' }), *since, pattern, *sample)
	}
	if err != nil {
		os.RemoveAll(t.tmp)
		log.Fatal(err)
	}
}

// known runs each mistake of the list with the tests that it names. What lives has a second try alone, in which nothing that another
// test does, a mount for example, gives a test what it waits for.
func (t *tool) known(only *regexp.Regexp) error {
	all, err := parse(only)
	if err != nil {
		return err
	}
	if t.sources, err = copyFunctions(t.root, all, &t.plans); err != nil {
		return err
	}
	var dirs []string
	for _, p := range t.plans {
		dirs = append(dirs, p.dir)
	}
	bins, err := t.build(dirs)
	if err != nil {
		return err
	}
	sound := map[string]bool{} // tests that pass without a mistake
	for _, p := range t.plans {
		if key := p.dir + p.tests; !sound[key] {
			if out, passed := t.run(bins[p.dir], 0, p.tests, 2*time.Minute); !passed || bytes.Contains(out, []byte("no tests to run")) {
				return fmt.Errorf("%s: without the mistake: %s", p.name, out)
			}
			sound[key] = true
		}
	}
	live := make([]bool, len(t.plans)+1)
	try := func(id int, p *plan) error {
		start := time.Now()
		_, live[id] = t.run(bins[p.dir], id, p.tests, 2*time.Minute)
		outcome := map[bool]string{true: "lives", false: "killed"}[live[id]]
		if p.survives != "" {
			outcome += ", is known to live: " + p.survives
		}
		fmt.Printf("%4.0f s  %s: %s: %s\n", time.Since(start).Seconds(), filepath.Base(p.file), p.name, outcome)
		return nil
	}
	err = t.each(try)
	wrong := 0
	for i, p := range t.plans {
		if live[i+1] && p.survives == "" {
			err = errors.Join(err, try(i+1, p))
		}
		if live[i+1] != (p.survives != "") {
			wrong++
		}
	}
	if wrong > 0 {
		return errors.Join(err, fmt.Errorf("%d of %d mistakes are not as listed", wrong, len(t.plans)))
	}
	fmt.Printf("%d mistakes are as listed\n", len(t.plans))
	return err
}

// each calls fn for all mistakes, as many at a time as there are processors. What fn gets is the number that chooses the mistake.
func (t *tool) each(fn func(id int, p *plan) error) error {
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	for i, p := range t.plans {
		g.Go(func() error { return fn(i+1, p) })
	}
	return g.Wait()
}

// bySyntax plants mistakes in the packages of dirs, and prints those that live.
func (t *tool) bySyntax(dirs, with []string, since string, only *regexp.Regexp, sample int) error {
	wanted := func(string, int, int) bool { return true }
	if since != "" {
		changed, err := changedLines(t.root, since)
		if err != nil {
			return err
		}
		wanted = func(file string, from, to int) bool {
			return slices.ContainsFunc(changed[file], func(l [2]int) bool { return l[0] <= to && from <= l[1] })
		}
	}
	for _, dir := range dirs {
		pkgs, err := packages.Load(&packages.Config{Mode: packages.LoadSyntax, Dir: filepath.Join(t.root, dir)}, ".")
		if err != nil || len(pkgs) != 1 || len(pkgs[0].Errors) > 0 {
			return fmt.Errorf("%s: %w %v", dir, err, pkgs)
		}
		sources, err := plant(pkgs[0], wanted, &t.plans)
		if err != nil {
			return err
		}
		t.sources = append(t.sources, sources...)
	}
	if len(t.plans) == 0 {
		fmt.Println("there is no function to plant mistakes in")
		return nil
	}
	var testDirs []string
	for _, dir := range slices.Concat(dirs, with) {
		testDirs = append(testDirs, filepath.Join(t.root, dir))
	}
	bins, err := t.build(testDirs)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.profile(bins); err != nil {
		return err
	}
	log.Printf("%d mistakes; all tests once, each alone, in %.0f s", len(t.plans), time.Since(start).Seconds())
	chosen := map[*plan]bool{}
	for _, i := range rand.New(rand.NewPCG(uint64(len(t.plans)), 0)).Perm(len(t.plans)) {
		if only.MatchString(t.plans[i].String()) && (sample == 0 || len(chosen) < sample) {
			chosen[t.plans[i]] = true
		}
	}
	var mu sync.Mutex
	var alive, killed, unreached, done int
	err = t.each(func(id int, p *plan) error {
		if !chosen[p] {
			return nil
		}
		began := time.Now()
		by := t.killer(id, p)
		mu.Lock()
		defer mu.Unlock()
		done++
		switch {
		case by != "":
			killed++
		case len(p.covering) == 0:
			unreached++
			fmt.Printf("%s: no test comes to it\n", p)
		default:
			alive++
			fmt.Printf("%s: lives, %d tests, %.0f s\n", p, len(p.covering), time.Since(began).Seconds())
		}
		if done%50 == 0 {
			log.Printf("%d of %d, %.0f s", done, len(chosen), time.Since(start).Seconds())
		}
		return nil
	})
	fmt.Printf("%d mistakes: %d killed, %d live, no test comes to %d: %.1f %% are not noticed\n",
		len(chosen), killed, alive, unreached, 100*float64(alive+unreached)/float64(max(1, len(chosen))))
	return err
}

func (p *plan) String() string {
	return fmt.Sprintf("%s:%d: %s", filepath.Base(p.file), p.line, p.name)
}

// killer returns a test that notices the mistake. Quick tests run first, together.
func (t *tool) killer(id int, p *plan) string {
	slices.SortFunc(p.covering, func(a, b *test) int { return int(a.took - b.took) })
	for rest := p.covering; len(rest) > 0; {
		n, together := 1, rest[0].took
		for n < len(rest) && rest[n].bin == rest[0].bin && together+rest[n].took < time.Second {
			together += rest[n].took
			n++
		}
		names := make([]string, n)
		for i := range n {
			names[i] = rest[i].name
		}
		if _, passed := t.run(rest[0].bin, id, strings.Join(names, "|"), 10*time.Second+5*together); !passed {
			return names[0]
		}
		rest = rest[n:]
	}
	return ""
}

// build writes the sources with all mistakes, and builds the tests in each directory with them.
func (t *tool) build(dirs []string) (bins map[string]*binary, err error) {
	replace, bins := map[string]string{}, map[string]*binary{}
	write := func(name string, text []byte) {
		replace[name] = filepath.Join(t.tmp, fmt.Sprintf("%d.go", len(replace)))
		err = errors.Join(err, os.WriteFile(replace[name], text, 0o666))
	}
	write(filepath.Join(t.root, "internal/mutant/mutant.go"), mutantSource)
	for _, s := range t.sources {
		write(s.name, s.planted())
	}
	overlay := filepath.Join(t.tmp, "overlay.json")
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	if err = errors.Join(err, os.WriteFile(overlay, text, 0o666)); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		if bins[dir] != nil {
			continue
		}
		b := &binary{dir: dir, path: filepath.Join(t.tmp, fmt.Sprintf("%d.test", len(bins)))}
		cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.path, ".")
		cmd.Dir = dir // which may be in a module of its own
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", dir, err, out)
		}
		bins[dir] = b
	}
	return bins, nil
}

// run runs tests with a mistake, and reports whether they pass in time.
func (t *tool) run(b *binary, id int, tests string, limit time.Duration, env ...string) (out []byte, passed bool) {
	ctx, stop := context.WithTimeout(context.Background(), limit+5*time.Second)
	defer stop()
	args := []string{"-test.run=^(" + tests + ")$", "-test.failfast", "-test.timeout=" + limit.String()}
	if !t.full {
		args = append(args, "-test.short")
	}
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(id))
	cmd.Env = append(cmd.Env, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what a test that was killed has started
	}
	return out, err == nil
}

// profile runs each test alone, and notes to which mistakes it comes.
func (t *tool) profile(bins map[string]*binary) error {
	var tests []*test
	for _, b := range bins {
		cmd := exec.Command(b.path, "-test.list", cmp.Or(t.tests, "^(Test|Example|Fuzz)"))
		cmd.Dir = b.dir
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w", b.dir, err)
		}
		for name := range strings.FieldsSeq(string(out)) {
			tests = append(tests, &test{bin: b, name: name})
		}
	}
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	var mu sync.Mutex
	for i, test := range tests {
		g.Go(func() error {
			hits := filepath.Join(t.tmp, fmt.Sprintf("hits%d", i))
			if err := os.WriteFile(hits, make([]byte, len(t.plans)+1), 0o666); err != nil {
				return err
			}
			defer os.Remove(hits)
			start := time.Now()
			out, passed := t.run(test.bin, 0, test.name, 5*time.Minute, "MUTANT_HITS="+hits)
			test.took = time.Since(start)
			if !passed {
				log.Printf("left out: %s fails without a mistake: %s", test.name, out[max(0, len(out)-1000):])
				return nil
			}
			hit, err := os.ReadFile(hits)
			mu.Lock()
			defer mu.Unlock()
			for i, p := range t.plans {
				if len(hit) > i+1 && hit[i+1] != 0 {
					p.covering = append(p.covering, test)
				}
			}
			return err
		})
	}
	return g.Wait()
}

// changedLines returns which lines of which files were changed after a commit.
func changedLines(root, since string) (map[string][][2]int, error) {
	cmd := exec.Command("git", "diff", "-U0", "--no-ext-diff", "--no-prefix", since, "--", "*.go")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", since, err)
	}
	changed, file := map[string][][2]int{}, ""
	hunk := regexp.MustCompile(`^@@ -\S+ \+(\d+)(?:,(\d+))? @@`)
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "+++ "); ok {
			file = filepath.Join(root, name)
		} else if m := hunk.FindStringSubmatch(lines.Text()); m != nil {
			from, _ := strconv.Atoi(m[1])
			n := 1
			if m[2] != "" {
				n, _ = strconv.Atoi(m[2])
			}
			changed[file] = append(changed[file], [2]int{from, from + n})
		}
	}
	return changed, nil
}
