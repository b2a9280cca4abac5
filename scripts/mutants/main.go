// Mutants plants known mistakes in the package, one at a time, and reports those that no test notices.
//
//	go run ./mutants [-run REGEXP]
//
// The mistakes are in mutants.txt, whose first lines say how to add one. A mistake whose text is not in its file exactly once, that
// does not build, or whose tests fail without it is an error: so the list stays true.
package main

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

//go:embed mutants.txt
var list string

type mutant struct {
	name, file, dir, tests string // dir is of the package whose tests are to notice it
	old, mistaken          string
	survives               string // why no test notices it
	source                 []byte // of file
}

func parse(root string, only *regexp.Regexp) (all []mutant, err error) {
	for block := range strings.SplitSeq(list, "\n\n") {
		var m mutant
		for line := range strings.Lines(block) {
			rest := strings.TrimPrefix(strings.TrimSuffix(line[1:], "\n")+"\n", " ")
			switch line[0] {
			case '-':
				m.old += rest
			case '+':
				m.mistaken += rest
			case '!':
				m.survives = strings.TrimSpace(rest)
			case '=':
				fmt.Sscan(rest, &m.file, &m.dir, &m.tests)
			case '#':
				m.name = strings.TrimSpace(rest)
			}
		}
		if m.file == "" || !only.MatchString(m.file+": "+m.name) {
			continue
		}
		m.file = filepath.Join(root, m.file)
		m.source, _ = os.ReadFile(m.file)
		if n := bytes.Count(m.source, []byte(m.old)); m.old == "" || n != 1 {
			err = errors.Join(err, fmt.Errorf("%s: %s has the text %d times", m.name, m.file, n))
		}
		all = append(all, m)
	}
	return all, err
}

// passes reports whether m's tests pass with text in place of its old lines.
func (m *mutant) passes(root, tmp, text string) (out []byte, passed bool) {
	source, overlay := filepath.Join(tmp, "source.go"), filepath.Join(tmp, "overlay.json")
	replace, _ := json.Marshal(map[string]any{"Replace": map[string]string{m.file: source}})
	err := errors.Join(os.WriteFile(overlay, replace, 0o666),
		os.WriteFile(source, bytes.Replace(m.source, []byte(m.old), []byte(text), 1), 0o666))
	if err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-overlay", overlay, "-vet=off", "-short", "-failfast", "-count=1", "-timeout=2m", "-run", "^("+m.tests+")$")
	cmd.Dir = filepath.Join(root, m.dir) // which may be in a module of its own
	out, err = cmd.CombinedOutput()
	return out, err == nil
}

func main() {
	log.SetFlags(0)
	only := flag.String("run", "", "plant only the mutants whose file and name match this `regexp`")
	flag.Parse()
	root, _ := filepath.Abs("..")
	all, err := parse(root, regexp.MustCompile(*only))
	if err != nil {
		log.Fatal(err)
	}
	tmp, err := os.MkdirTemp("", "mutants")
	if err != nil {
		log.Fatal(err)
	}
	sound, wrong := map[string]bool{}, 0 // tests that pass without a mistake
	for _, m := range all {
		start := time.Now()
		if key := m.dir + m.tests; !sound[key] {
			out, passed := m.passes(root, tmp, m.old)
			if !passed || bytes.Contains(out, []byte("no tests to run")) {
				log.Fatalf("%s: without the mistake: %s", m.name, out)
			}
			sound[key] = true
		}
		outcome := "killed"
		switch out, survived := m.passes(root, tmp, m.mistaken); {
		case bytes.Contains(out, []byte("[build failed]")):
			outcome = fmt.Sprintf("DOES NOT BUILD: %s", out)
			wrong++
		case survived && m.survives != "":
			outcome = "survives: " + m.survives
		case survived != (m.survives != ""):
			outcome = map[bool]string{true: "SURVIVES " + m.tests, false: "IS KILLED, and listed as a survivor"}[survived]
			wrong++
		}
		fmt.Printf("%4.0f s  %s: %s: %s\n", time.Since(start).Seconds(), filepath.Base(m.file), m.name, outcome)
	}
	os.RemoveAll(tmp)
	if wrong > 0 {
		log.Fatalf("%d of %d mutants are not as listed", wrong, len(all))
	}
	fmt.Printf("%d mutants are as listed\n", len(all))
}
