//go:build linux

package churn

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fileproc/fileproc/internal/testtree"
	"github.com/fileproc/fileproc/scripts/break/internal/trial"
)

// contentOf returns the content of a file that nobody changes. File systems can compress it, but no two blocks of 64 bytes are equal.
func contentOf(rel string) []byte {
	p := bytes.Clone(testtree.BytesOf(rel))
	for i := range p {
		if i%64 >= 8 {
			p[i] = byte(i)
		}
	}
	return p
}

// plan returns the files and directories of the random tree of seed. Nobody changes them.
func plan(seed int64) (rels []string) {
	random := rand.New(rand.NewSource(seed))
	var fill func(rel string, depth, dirs int)
	fill = func(rel string, depth, dirs int) {
		files := random.Intn(40)
		if random.Intn(6) == 0 || depth == 0 {
			files = random.Intn(2500)
		}
		for i := range files {
			rels = append(rels, fmt.Sprintf("%sf%04d%s", rel, i, []string{"", ".a", ".b"}[i%3]))
		}
		for i := range dirs {
			sub := fmt.Sprintf("%sd%02d/", rel, i)
			rels = append(rels, sub)
			fill(sub, depth+1, random.Intn(4-min(depth, 3)))
		}
	}
	fill("", 0, random.Intn(8))
	return rels
}

// generation returns the content of generation gen of a file, from 1: a header, and bytes that the header determines.
func generation(id string, gen int64) []byte {
	header := fmt.Appendf(nil, "%s %d\n", id, gen)
	h := fnv.New64a()
	h.Write(header)
	random := rand.New(rand.NewSource(int64(h.Sum64())))
	body := make([]byte, random.Intn(trial.Pick(random, 100, 2000, 8000, 8000, 200_000))) // the last is more than one read
	random.Read(body)
	return append(header, body...)
}

func first(id string) []byte { return generation(id, 1) }

// parse returns the file and the generation of content. The content must be whole or, if prefix is set, the beginning of a whole
// content. A beginning may be too short to tell either.
func parse(content []byte, prefix bool) (id string, gen int64, err error) {
	line, _, ok := bytes.Cut(content, []byte("\n"))
	if _, err := fmt.Sscanf(string(line), "%s %d", &id, &gen); !ok || err != nil {
		if prefix && len(content) < 80 {
			return "", 0, nil
		}
		return "", 0, fmt.Errorf("torn: %d bytes that begin with %.40q", len(content), content)
	}
	want := generation(id, gen)
	if !bytes.Equal(want, content) && !(prefix && bytes.HasPrefix(want, content)) {
		return "", 0, fmt.Errorf("torn: %d bytes that are not the %d of generation %d of %s", len(content), len(want), gen, id)
	}
	return id, gen, nil
}

// A tree is a directory that writers change. The first letter of a name says what they do with it:
//
//	f  nothing: it comes exactly once with exactly its bytes
//	r  it is replaced atomically: it comes whole, and is never older than what was there when the run began
//	n  it is renamed within the tree: it comes whole under any of its names, perhaps twice or not at all
//	w  it is rewritten in place: any of its bytes, or zeros
//	m  it also becomes a directory, a link or a FIFO, or unreadable
//	c  it is created and removed: its first bytes
//	t  it is a temporary file of an r: its first bytes
//	d  a directory that stays as it is; v a directory that is renamed, with files n; x one that is created and removed, with a file c
type tree struct {
	root     string
	dirs     []string // with a slash at the end, or empty
	stable   map[string]bool
	replaced map[string]*[2]atomic.Int64 // by rel of an r file: the last generation that was written, and the last that was begun
	shares   []share                     // by writer
}

// A share has the paths that only one writer changes, by letter.
type share map[byte][]string

// plant makes the tree of seed for a number of writers.
func plant(root string, seed int64, writers int) (*tree, error) {
	rels := plan(seed)
	t := &tree{root: root, dirs: []string{""}, stable: trial.Set(rels), replaced: map[string]*[2]atomic.Int64{}, shares: make([]share, writers)}
	for _, rel := range rels {
		if !t.stable[rel] {
			t.dirs = append(t.dirs, rel)
		}
	}
	err := trial.Write(root, contentOf, append(rels, "")...)
	for w := range t.shares {
		s := share{'v': {fmt.Sprintf("v%d-0", w), fmt.Sprintf("v%d-1", w)}}
		t.shares[w] = s
		for i := range max(12, len(t.dirs)) {
			for j, letter := range "rrrrrrrrrrrrnnnnnnwwwwwwmmmmmm" {
				rel := fmt.Sprintf("%s%c%d-%d-%d%s", t.dirs[i%len(t.dirs)], letter, w, i, j, map[bool]string{true: ".a"}[letter == 'm' && j%2 > 0])
				s[byte(letter)] = append(s[byte(letter)], rel)
				if letter == 'r' {
					t.replaced[rel] = new([2]atomic.Int64)
					t.replaced[rel][0].Store(1)
					t.replaced[rel][1].Store(1)
				}
			}
		}
		err = errors.Join(err, trial.Write(root, first, append(s['r'], s['n']...)...),
			trial.Write(root, func(string) []byte { return nil }, append(s['w'], s['m']...)...))
		for j := range 40 {
			err = errors.Join(err, trial.Write(root, first, fmt.Sprintf("%s/n%d-%d", s['v'][j%2], w, j)))
		}
	}
	return t, err
}

// step makes a change in the share of writer w.
func (t *tree) step(random *rand.Rand, w, k int) (did string, err error) {
	s, at := t.shares[w], trial.Pick(random, t.dirs...)
	in := func(rel string) string { return filepath.Join(t.root, rel) }
	fresh := func(letter string) string { return fmt.Sprintf("%s%s%d-%d", at, letter, w, k) }
	take := func(rels []string) string { // moves a random path to the end of rels and returns it
		i := random.Intn(len(rels))
		rels[i], rels[len(rels)-1] = rels[len(rels)-1], rels[i]
		return rels[len(rels)-1]
	}
	move := func(letter string) error {
		rels := s[letter[0]]
		from := take(rels)
		rels[len(rels)-1] = fresh(letter)
		return os.Rename(in(from), in(fresh(letter)))
	}
	if k%16 == 0 {
		time.Sleep(time.Millisecond) // on tmpfs the writers would leave no processor to the runs
	}
	switch what := random.Intn(24); {
	case what < 8:
		rel := take(s['r'])
		temp, gens := in(filepath.Dir(rel)+"/t"+fmt.Sprint(w)), t.replaced[rel]
		gen := gens[1].Add(1)
		err = errors.Join(os.WriteFile(temp, generation(rel, gen), 0o644), os.Rename(temp, in(rel)))
		gens[0].Store(gen)
		return "replaced", err
	case what < 11:
		return "renamed", move("n")
	case what < 14:
		f, err := os.OpenFile(in(take(s['w'])), os.O_WRONLY|trial.Pick(random, os.O_TRUNC, os.O_APPEND, 0), 0o644)
		if err != nil {
			return "rewritten", err
		}
		defer f.Close()
		if i, err := f.Stat(); err != nil || i.Size() > 100_000 {
			return "rewritten", errors.Join(err, f.Truncate(0))
		}
		_, err = f.Write(bytes.Repeat([]byte{'w'}, random.Intn(5000)))
		return "rewritten", err
	case what < 16 || len(s['c']) < 20 && what < 19:
		s['c'] = append(s['c'], fresh("c"))
		return "created", trial.Write(t.root, first, fresh("c"))
	case what < 19:
		rel := take(s['c'])
		s['c'] = s['c'][:len(s['c'])-1]
		return "deleted", os.Remove(in(rel))
	case what < 20:
		return "directories moved", move("v")
	case what < 21:
		s['x'] = append(s['x'], fresh("x"))
		return "directories made", trial.Write(t.root, first, fresh("x")+"/c")
	case what < 22 && len(s['x']) > 5:
		rel := s['x'][0]
		err := os.RemoveAll(in(rel))
		if s['x'] = s['x'][1:]; errors.Is(err, syscall.ENOTEMPTY) { // NFS keeps a removed file under another name while a reader has it open
			s['x'], err = append(s['x'], rel), nil
		}
		return "directories removed", err
	}
	testtree.Disturb(random, in(take(s['m'])), fmt.Sprint(t.root, w))
	return "disturbed", nil
}

// letter returns what the writers do with a file or directory.
func letter(rel string) byte { return filepath.Base(rel)[0] }

// stays reports whether a file or directory exists all the time, with whatever content.
func stays(rel string) bool { return rel == "." || strings.IndexByte("frwd", letter(rel)) >= 0 }
