package main

import (
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

const (
	// lineEndClass stands for the end of a line among the bytes of ASCII.
	lineEndClass = utf8.RuneSelf
	// maxStates bounds the memory of a dfa: a state takes somewhat more than 1 KiB.
	maxStates = 4096
)

// A dfa tells which lines match an expression. It is several times as fast as regexp.Regexp, which also tells where in
// the line. Its states are made as they are come to; one goroutine uses it.
type dfa struct {
	prog   *syntax.Prog
	states map[string]*state
	start  *state // at the beginning of a line

	// Room for step.
	seen  []uint64 // by instruction: the step that came to it last
	steps uint64
	stack []uint32
	pcs   []uint32
	key   []byte
}

// A state is the instructions that are to be tried at one place in a line. What they demand of the place itself, such as
// a word boundary, is judged with the next character.
type state struct {
	pcs  []uint32
	prev rune // like the character before: -1 if there is none, a letter, or a space
	next [lineEndClass + 1]*state
}

// matched is the state from which on a line matches.
var matched = &state{}

func newDFA(expression string) (*dfa, error) {
	tree, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return nil, err
	}
	prog, err := syntax.Compile(tree.Simplify())
	if err != nil {
		return nil, err
	}
	d := &dfa{prog: prog, seen: make([]uint64, len(prog.Inst))}
	d.forget()
	return d, nil
}

// forget drops all states.
func (d *dfa) forget() {
	d.states = map[string]*state{}
	d.start = &state{pcs: []uint32{uint32(d.prog.Start)}, prev: -1}
}

// find returns a place in the first line of b that matches, or -1.
func (d *dfa) find(b []byte) int {
	s := d.start
	for i := 0; i < len(b); {
		c := b[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRune(b[i:])
			if s = d.step(s, r); s == matched {
				return i
			}
			i += size
			continue
		}
		class, r := int(c), rune(c)
		if c == '\n' {
			class, r = lineEndClass, -1
		}
		next := s.next[class]
		if next == nil {
			next = d.step(s, r)
			s.next[class] = next
		}
		if next == matched {
			return i
		}
		s = next
		i++
	}
	if len(b) == 0 || b[len(b)-1] != '\n' {
		if d.step(s, -1) == matched {
			return len(b)
		}
	}
	return -1
}

// step returns what follows s with the character r, or with a line's end if r is -1.
func (d *dfa) step(s *state, r rune) *state {
	context := syntax.EmptyOpContext(s.prev, r)
	d.steps++
	d.stack, d.pcs = append(d.stack[:0], s.pcs...), d.pcs[:0]
	for len(d.stack) > 0 {
		pc := d.stack[len(d.stack)-1]
		d.stack = d.stack[:len(d.stack)-1]
		if d.seen[pc] == d.steps {
			continue
		}
		d.seen[pc] = d.steps
		inst := &d.prog.Inst[pc]
		switch inst.Op {
		case syntax.InstMatch:
			return matched
		case syntax.InstAlt, syntax.InstAltMatch:
			d.stack = append(d.stack, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop:
			d.stack = append(d.stack, inst.Out)
		case syntax.InstEmptyWidth:
			if syntax.EmptyOp(inst.Arg)&^context == 0 {
				d.stack = append(d.stack, inst.Out)
			}
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			if r >= 0 && inst.MatchRune(r) {
				d.pcs = append(d.pcs, inst.Out)
			}
		}
	}
	if r < 0 {
		return d.start
	}
	return d.state(r)
}

// state returns the state of the instructions in d.pcs, and of those that a match may begin with, behind r.
func (d *dfa) state(r rune) *state {
	prev := ' '
	if syntax.IsWordChar(r) {
		prev = 'a'
	}
	d.pcs = append(d.pcs, uint32(d.prog.Start))
	slices.Sort(d.pcs)
	d.pcs = slices.Compact(d.pcs)
	d.key = append(d.key[:0], byte(prev))
	for _, pc := range d.pcs {
		d.key = append(d.key, byte(pc), byte(pc>>8), byte(pc>>16), byte(pc>>24))
	}
	s := d.states[string(d.key)]
	if s == nil {
		if len(d.states) >= maxStates {
			d.forget()
		}
		s = &state{pcs: slices.Clone(d.pcs), prev: prev}
		d.states[string(d.key)] = s
	}
	return s
}
