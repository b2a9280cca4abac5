package main

import (
	"regexp/syntax"
	"slices"
	"unicode/utf8"
)

// maxStates bounds the memory of a dfa: a state takes somewhat more than 1 KiB.
const maxStates = 4096

// A dfa tells which lines match an expression. It is several times as fast as regexp.Regexp, which also tells where in
// the line. Its states are made as they are come to; one goroutine uses it.
type dfa struct {
	prog   *syntax.Prog
	states map[string]*state
	start  *state         // at the beginning of a line
	asks   syntax.EmptyOp // what prog demands of places
	wide   [512]wideStep  // the steps last taken with characters beyond ASCII, by both

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
	id   int
	pcs  []uint32
	prev rune                  // like the character before: -1 if there is none, a letter, or a space
	next [utf8.RuneSelf]*state // by character; that of a newline is what follows the end of the line
}

// A wideStep is a step that was taken.
type wideStep struct {
	from, to *state
	r        rune
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
	for _, inst := range prog.Inst {
		if inst.Op == syntax.InstEmptyWidth {
			d.asks |= syntax.EmptyOp(inst.Arg)
		}
	}
	d.forget()
	return d, nil
}

// beforeMatters is what of an expression's demands is about the character before a place.
const beforeMatters = syntax.EmptyBeginLine | syntax.EmptyBeginText | syntax.EmptyWordBoundary | syntax.EmptyNoWordBoundary

// forget drops all states.
func (d *dfa) forget() {
	d.states = map[string]*state{}
	clear(d.wide[:])
	if d.asks&beforeMatters == 0 {
		d.pcs = d.pcs[:0]
		d.start = d.state(' ')
		return
	}
	d.start = &state{pcs: []uint32{uint32(d.prog.Start)}, prev: -1}
}

// find returns a place in the first line of b that matches, or -1.
func (d *dfa) find(b []byte) int {
	s := d.start
	for i := 0; i < len(b); {
		size := 1
		var next *state
		if c := b[i]; c < utf8.RuneSelf {
			if next = s.next[c]; next == s {
				i++ // by far the most frequent, and the next byte does not wait for this one
				continue
			}
			if next == nil {
				next = d.ascii(s, c)
			}
		} else {
			next, size = d.beyondASCII(s, b[i:])
		}
		if next == matched {
			return i
		}
		s = next
		i += size
	}
	if len(b) == 0 || b[len(b)-1] != '\n' {
		if d.step(s, -1) == matched {
			return len(b)
		}
	}
	return -1
}

func (d *dfa) ascii(s *state, c byte) *state {
	r := rune(c)
	if c == '\n' {
		r = -1
	}
	next := d.step(s, r)
	s.next[c] = next
	return next
}

// beyondASCII returns what follows s with the character that b begins with, and how long that is.
func (d *dfa) beyondASCII(s *state, b []byte) (next *state, size int) {
	r, size := utf8.DecodeRune(b)
	known := &d.wide[(s.id+31*int(r))%len(d.wide)]
	if known.from != s || known.r != r {
		*known = wideStep{s, d.step(s, r), r}
	}
	return known.to, size
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
	if d.asks&(syntax.EmptyWordBoundary|syntax.EmptyNoWordBoundary) != 0 && syntax.IsWordChar(r) {
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
		s = &state{id: len(d.states), pcs: slices.Clone(d.pcs), prev: prev}
		d.states[string(d.key)] = s
	}
	return s
}
