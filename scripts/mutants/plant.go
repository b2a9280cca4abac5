package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/packages"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// A source is a file in which mistakes are planted. The insertions keep the numbers of lines.
type source struct {
	name    string // absolute
	text    []byte
	syntax  *ast.File
	start   token.Pos
	inserts []insert
}

type insert struct {
	at, end int // the replaced text, mostly empty
	order   int // of insertions at one place: closing texts first, in reverse order, then opening texts in order
	text    string
}

func (s *source) insert(from, to token.Pos, order int, text string) {
	s.inserts = append(s.inserts, insert{int(from - s.start), int(to - s.start), order, text})
}

// planted returns the file with its mistakes.
func (s *source) planted() []byte {
	slices.SortStableFunc(s.inserts, func(a, b insert) int { return cmp.Or(a.at-b.at, a.order-b.order) })
	var out []byte
	at := 0
	for _, in := range s.inserts {
		out = append(append(out, s.text[at:in.at]...), in.text...)
		at = in.end
	}
	return append(out, s.text[at:]...)
}

// A planter plants every mistake that it knows in a package's functions.
type planter struct {
	*packages.Package
	*source
	of    string // the function
	plans *[]*plan
	order int
	done  map[ast.Expr]bool
}

// plant plants mistakes in the functions of pkg that wanted selects.
func plant(pkg *packages.Package, wanted func(file string, from, to int) bool, plans *[]*plan) (sources []*source) {
	for i, f := range pkg.Syntax {
		p := planter{Package: pkg, plans: plans, done: map[ast.Expr]bool{}}
		p.source = &source{name: pkg.CompiledGoFiles[i], syntax: f, start: f.FileStart}
		p.text = fail.Must(os.ReadFile(p.name))
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || !wanted(p.name, p.line(fn.Pos()), p.line(fn.End())) {
				continue
			}
			p.of = funcName(fn)
			p.function(fn)
		}
		if len(p.inserts) > 0 {
			p.insert(f.Name.End(), f.Name.End(), 0, importMutant)
			sources = append(sources, p.source)
		}
	}
	return sources
}

func (p *planter) line(at token.Pos) int { return p.Fset.Position(at).Line }

func (p *planter) textOf(n ast.Node) string {
	return string(p.text[n.Pos()-p.start : n.End()-p.start])
}

// mistake adds a mistake with the description what.
func (p *planter) mistake(what string, n ast.Node) int {
	text := strings.Join(strings.Fields(p.textOf(n)), " ")
	if len(text) > 90 {
		text = text[:87] + "..."
	}
	*p.plans = append(*p.plans, &plan{id: len(*p.plans) + 1, file: p.name, line: p.line(n.Pos()), name: p.of + ": " + what + ": " + text})
	return len(*p.plans)
}

// wrap puts n between two texts.
func (p *planter) wrap(n ast.Node, before, after string) {
	p.order++
	p.insert(n.Pos(), n.Pos(), p.order, before)
	p.insert(n.End(), n.End(), -p.order, after)
}

func (p *planter) function(fn *ast.FuncDecl) {
	inspector.New([]*ast.File{{Name: fn.Name, Decls: []ast.Decl{fn}}}).WithStack(nil, func(n ast.Node, push bool, stack []ast.Node) bool {
		if !push {
			return true
		}
		switch n := n.(type) {
		case *ast.BlockStmt:
			p.statements(n.List, results(stack))
		case *ast.CommClause:
			p.statements(n.Body, results(stack))
		case *ast.CaseClause:
			p.statements(n.Body, results(stack))
			if s, ok := stack[len(stack)-3].(*ast.SwitchStmt); ok && s.Tag == nil {
				for _, e := range n.List {
					p.condition(e, true, true)
				}
			}
		case *ast.IfStmt:
			p.condition(n.Cond, true, true)
		case *ast.ForStmt:
			if n.Cond != nil {
				p.condition(n.Cond, false, true) // a loop without an end would take the time limit
			}
		case *ast.ReturnStmt:
			p.returned(n)
		case *ast.BinaryExpr:
			p.operator(n)
		case *ast.CallExpr:
			p.clamp(n)
		case *ast.CompositeLit:
			p.literal(n)
		}
		return true
	})
}

// results reports whether the innermost function has results.
func results(stack []ast.Node) bool {
	for _, n := range slices.Backward(stack) {
		switch n := n.(type) {
		case *ast.FuncLit:
			return n.Type.Results != nil
		case *ast.FuncDecl:
			return n.Type.Results != nil
		}
	}
	return true
}

// statements plants mistakes that leave a statement out.
func (p *planter) statements(list []ast.Stmt, results bool) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || trivial.MatchString(types.ExprString(call.Fun)) {
				continue
			}
		case *ast.DeferStmt:
			if trivial.MatchString(types.ExprString(s.Call.Fun)) {
				continue
			}
		case *ast.AssignStmt:
			if name, ok := s.Lhs[0].(*ast.Ident); s.Tok == token.DEFINE || ok && name.Name == "_" {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok != token.BREAK && s.Tok != token.CONTINUE {
				continue
			}
		case *ast.ReturnStmt:
			if results || len(s.Results) > 0 {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		default:
			continue
		}
		p.wrap(s, fmt.Sprintf("if !mutant.On(%d) { ", p.mistake("left out", s)), " }")
	}
}

// trivial matches functions without whose call a program ends at once, which any test would notice.
var trivial = regexp.MustCompile(`(^|\.)(R?Lock|R?Unlock|panic)$`)

// condition plants mistakes that make e, or an operand of && or || in e, always true or always false.
func (p *planter) condition(e ast.Expr, always, never bool) {
	e = ast.Unparen(e)
	if p.done[e] || !p.isBool(e) {
		return
	}
	p.done[e] = true
	switch e := e.(type) {
	case *ast.BinaryExpr:
		switch e.Op {
		case token.LAND:
			p.condition(e.X, always, never)
			p.condition(e.Y, true, false) // always false would be the same as for e.X
			return
		case token.LOR:
			p.condition(e.X, always, never)
			p.condition(e.Y, false, true)
			return
		}
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			p.condition(e.X, never, always)
			return
		}
	}
	if always {
		p.wrap(e, "(", fmt.Sprintf(" || mutant.On(%d))", p.mistake("always true", e)))
	}
	if never {
		p.wrap(e, "(", fmt.Sprintf(" && !mutant.On(%d))", p.mistake("always false", e)))
	}
}

// isBool reports whether e is neither a constant nor of a named type.
func (p *planter) isBool(e ast.Expr) bool {
	tv := p.TypesInfo.Types[e]
	basic, ok := tv.Type.(*types.Basic)
	return ok && basic.Info()&types.IsBoolean != 0 && tv.Value == nil
}

func (p *planter) returned(s *ast.ReturnStmt) {
	for _, e := range s.Results {
		switch t := p.TypesInfo.Types[e]; {
		case t.Type == nil || len(s.Results) == 1 && isTuple(t.Type):
		case p.isBool(e):
			p.condition(e, true, true)
		case t.Value != nil && types.Identical(types.Default(t.Type), types.Typ[types.Bool]):
			p.wrap(e, "(", fmt.Sprintf(" != mutant.On(%d))", p.mistake("the opposite", e)))
		case types.Identical(t.Type, types.Universe.Lookup("error").Type()):
			p.wrap(e, fmt.Sprintf("mutant.NoError(%d, ", p.mistake("no error", e)), ")")
		}
	}
}

func isTuple(t types.Type) bool { _, ok := t.(*types.Tuple); return ok }

// operator plants a bound that is moved by one, and conditions outside of if and for statements. It leaves bounds of durations, which a
// clock does not meet exactly, and a length > 0, which is always true if it is moved.
func (p *planter) operator(e *ast.BinaryExpr) {
	tv := p.TypesInfo.Types[e]
	if tv.Value != nil || tv.Type == nil {
		return
	}
	p.condition(e, true, true)
	call := map[token.Token]string{token.LSS: "Less", token.LEQ: "LessEqual", token.GTR: "!mutant.LessEqual", token.GEQ: "!mutant.Less"}[e.Op]
	switch {
	case call != "" && p.isBool(e) && p.TypesInfo.Types[e.X].Type.String() != "time.Duration" && !(isCall(e.X, "len") && p.textOf(e.Y) == "0"):
		call = strings.Replace("mutant."+call, "mutant.!", "!", 1)
		p.wrap(e, fmt.Sprintf("%s(%d, ", call, p.mistake("equal taken for the other", e)), ")")
		p.insert(e.OpPos, e.OpPos+token.Pos(len(e.Op.String())), 0, ", ")
	case (e.Op == token.ADD || e.Op == token.SUB) && p.textOf(e.Y) == "1" && isPure(e.X) && p.TypesInfo.Types[e.X].Value == nil:
		p.insert(e.Y.Pos(), e.Y.End(), 0, fmt.Sprintf("mutant.One(%d, %s)", p.mistake("without the 1", e), p.textOf(e.X)))
	}
}

// isPure reports whether e is a variable, a field or an element of one.
func isPure(e ast.Expr) bool {
	pure := true
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			pure = pure && isCall(n, "len", "cap", "int", "int64", "uint64", "min", "max")
		case *ast.UnaryExpr:
			pure = pure && n.Op != token.ARROW
		case *ast.FuncLit, *ast.CompositeLit:
			pure = false
		}
		return pure
	})
	return pure
}

// isCall reports whether e calls one of these predeclared functions.
func isCall(e ast.Expr, names ...string) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && slices.Contains(names, types.ExprString(call.Fun))
}

// clamp plants min and max that are only one of their arguments.
func (p *planter) clamp(call *ast.CallExpr) {
	if !isCall(call, "min", "max") || len(call.Args) != 2 || p.TypesInfo.Types[call].Value != nil {
		return
	}
	for _, arg := range call.Args {
		if isPure(arg) {
			p.wrap(call, fmt.Sprintf("mutant.Other(%d, ", p.mistake("only "+p.textOf(arg), call)), ", "+p.textOf(arg)+")")
		}
	}
}

// literal plants mistakes that leave out a field.
func (p *planter) literal(lit *ast.CompositeLit) {
	t := p.TypesInfo.Types[lit].Type
	st, ok := t.Underlying().(*types.Struct)
	if !ok {
		return
	}
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return
		}
		v := p.TypesInfo.Types[kv.Value]
		if v.Value != nil {
			continue // its type is the field's, not its own
		}
		for field := range st.Fields() {
			if field.Name() == kv.Key.(*ast.Ident).Name && types.Identical(field.Type(), v.Type) && !p.isBool(kv.Value) {
				p.wrap(kv.Value, fmt.Sprintf("mutant.Zero(%d, ", p.mistake("left out", kv)), ")")
			}
		}
	}
}
