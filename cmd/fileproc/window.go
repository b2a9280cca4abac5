package main

import (
	"math/bits"
	"regexp/syntax"
	"unicode/utf8"
)

// maxWindow is how many bytes a window is about at most. The places of its pairs are the bits of a byte.
const maxWindow = 9

// A window tells where an expression may match, by what the first bytes of a match can be. It looks at as few pairs of
// bytes as each match must have one of, most of which are in no match.
type window struct {
	size  int
	may   [256]uint16    // by bit, at which places of the window the byte may be
	pairs [1 << 14]uint8 // the same of two bytes in a row, without their highest bits
}

// Costs, in ns for each byte of content, about. What a dfa costs is what others have to come below.
const (
	dfaCost = 1.5
	// lineCost is that of a line, once, which may match and is given to a dfa.
	lineCost = 120
)

// newWindow returns a window for a simplified expression, or nil if there is none, and what it costs.
func newWindow(tree *syntax.Regexp) (*window, float64) {
	prog, err := syntax.Compile(withoutFirst(tree))
	if err != nil {
		return nil, 0
	}
	w, least := &window{}, 0.0
	var often [maxWindow]float64 // of a place, how much of text fits it
	any, all := 0.0, 1.0         // of the pairs at each place, and of all places together
	pcs := []uint32{uint32(prog.Start)}
	for at, wide := 0, false; at < maxWindow && !wide; at++ {
		var ends bool
		if pcs, wide, ends = bytesOf(prog, pcs, func(b byte) { w.may[b] |= 1 << at }); ends {
			break
		}
		for b, places := range w.may {
			if places>>at&1 != 0 {
				often[at] += frequency(byte(b))
			}
		}
		all *= min(often[at], 1)
		if at == 0 {
			continue
		}
		any += often[at-1] * often[at]
		if cost := (0.5+6*min(any, 1))/float64(at) + lineCost*all; w.size == 0 || cost < least {
			w.size, least = at+1, cost
		}
	}
	if w.size == 0 {
		return nil, 0
	}
	for x := range w.may {
		for y := range w.may {
			w.pairs[pairOf(byte(x), byte(y))] |= uint8(w.may[x] & (w.may[y] >> 1) & (1<<(w.size-1) - 1))
		}
	}
	return w, least
}

func pairOf(x, y byte) int { return int(x&0x7f)<<7 | int(y&0x7f) }

// withoutFirst returns an expression that matches within each match of tree, and has less to try at its beginning.
func withoutFirst(tree *syntax.Regexp) *syntax.Regexp {
	switch tree.Op {
	case syntax.OpCapture, syntax.OpPlus:
		return withoutFirst(tree.Sub[0])
	case syntax.OpConcat:
		rest := *tree
		for len(rest.Sub) > 1 {
			switch first := rest.Sub[0]; first.Op {
			case syntax.OpStar, syntax.OpQuest, syntax.OpEmptyMatch, syntax.OpBeginLine, syntax.OpBeginText,
				syntax.OpWordBoundary, syntax.OpNoWordBoundary:
				rest.Sub = rest.Sub[1:]
				continue
			case syntax.OpPlus, syntax.OpCapture:
				rest.Sub = append([]*syntax.Regexp{withoutFirst(first)}, rest.Sub[1:]...)
			}
			break
		}
		return &rest
	}
	return tree
}

// bytesOf tells each byte that the instructions pcs and those behind them take next, and returns what then follows. It
// takes what the place is to be, such as a line's beginning, for given. wide says that the byte may be the first of several
// of a character, and ends that a match may need no more.
func bytesOf(prog *syntax.Prog, pcs []uint32, each func(byte)) (next []uint32, wide, ends bool) {
	seen := make([]bool, len(prog.Inst))
	for len(pcs) > 0 {
		pc := pcs[len(pcs)-1]
		pcs = pcs[:len(pcs)-1]
		if seen[pc] {
			continue
		}
		seen[pc] = true
		inst := &prog.Inst[pc]
		switch inst.Op {
		case syntax.InstMatch:
			return nil, wide, true
		case syntax.InstAlt, syntax.InstAltMatch:
			pcs = append(pcs, inst.Out, inst.Arg)
		case syntax.InstCapture, syntax.InstNop, syntax.InstEmptyWidth:
			pcs = append(pcs, inst.Out)
		case syntax.InstRune, syntax.InstRune1, syntax.InstRuneAny, syntax.InstRuneAnyNotNL:
			next = append(next, inst.Out)
			for r := range rune(utf8.RuneSelf) {
				if r != '\n' && inst.MatchRune(r) {
					each(byte(r))
				}
			}
			if takesWide(inst) {
				wide = true
				for b := utf8.RuneSelf; b < 256; b++ {
					each(byte(b))
				}
			}
		}
	}
	return next, wide, false
}

// takesWide reports whether an instruction may match a character beyond ASCII, but for those of asciiFolds.
func takesWide(inst *syntax.Inst) bool {
	switch {
	case inst.Op == syntax.InstRuneAny || inst.Op == syntax.InstRuneAnyNotNL:
		return true
	case len(inst.Rune) == 0:
		return false
	case len(inst.Rune) == 1:
		return inst.Rune[0] >= utf8.RuneSelf // no other letter of ASCII has more than two cases
	}
	for i := 0; i < len(inst.Rune); i += 2 {
		lo, hi := inst.Rune[i], inst.Rune[i+1]
		if hi >= utf8.RuneSelf && (lo != hi || lo != longS && lo != kelvin) {
			return true
		}
	}
	return false
}

// index returns the first place in b where the expression may match, or -1.
func (w *window) index(b []byte) int {
	step := w.size - 1
	i := step - 1 // of the first byte of a pair; each window has the pairs of step places
	for i+1 < len(b) {
		if i+3*step+1 < len(b) && w.at(b, i)|w.at(b, i+step)|w.at(b, i+2*step)|w.at(b, i+3*step) == 0 {
			i += 4 * step
			continue
		}
		for places := w.at(b, i); places != 0; {
			place := bits.Len8(places) - 1
			places &^= 1 << place
			if at := i - place; w.fits(b[at:]) {
				return at
			}
		}
		i += step
	}
	return -1
}

func (w *window) at(b []byte, i int) uint8 { return w.pairs[pairOf(b[i], b[i+1])] }

func (w *window) fits(b []byte) bool {
	if len(b) < w.size {
		return false
	}
	for at, c := range b[:w.size] {
		if w.may[c]>>at&1 == 0 {
			return false
		}
	}
	return true
}
