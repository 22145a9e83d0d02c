package sim

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
)

// expectation is `A.x < B.y * f`, or `A.x < 0.1`; < may be > as well.
type expectation struct {
	text         string
	left, right  operand
	less         bool
	factor, bare float64 // bare is the right side when it names no policy
}

type operand struct{ policy, figure string }

var expectForm = regexp.MustCompile(`^\s*([a-z0-9-]+)\.([a-z0-9_]+)\s*([<>])\s*(?:([a-z][a-z0-9-]*)\.([a-z0-9_]+)(?:\s*\*\s*([0-9.]+))?|([0-9.]+))\s*$`)

var errExpect = errors.New("want `policy.figure < policy.figure * factor` or `policy.figure < number`, or > in place of <")

func parseExpect(text string) (expectation, error) {
	m := expectForm.FindStringSubmatch(text)
	if m == nil {
		return expectation{}, errExpect
	}
	e := expectation{text: text, left: operand{m[1], m[2]}, right: operand{m[4], m[5]}, less: m[3] == "<", factor: 1}
	for _, o := range []operand{e.left, e.right} {
		if o.policy != "" {
			if _, err := new(Result).Field(o.figure); err != nil {
				return e, err
			}
		}
	}
	for _, x := range []struct {
		text string
		to   *float64
	}{{m[6], &e.factor}, {m[7], &e.bare}} {
		if x.text != "" {
			v, err := strconv.ParseFloat(x.text, 64)
			if err != nil {
				return e, fmt.Errorf("%q is not a number", x.text)
			}
			*x.to = v
		}
	}
	return e, nil
}

// Check says which of the scenario's expectations do not hold, and which could not be
// looked at because a policy was not run.
func (s *Scenario) Check(results []*Result) (failed, skipped []string) {
	find := func(name string) *Result {
		for _, r := range results {
			if r.Policy == name {
				return r
			}
		}
		return nil
	}
	for _, text := range s.Expect {
		e, _ := parseExpect(text) // checked when it was read
		left := find(e.left.policy)
		if left == nil {
			skipped = append(skipped, text)
			continue
		}
		a, _ := left.Field(e.left.figure)
		b := e.bare
		if e.right.policy != "" {
			right := find(e.right.policy)
			if right == nil {
				skipped = append(skipped, text)
				continue
			}
			b, _ = right.Field(e.right.figure)
			b *= e.factor
		}
		if e.less && !(a < b) || !e.less && !(a > b) {
			failed = append(failed, fmt.Sprintf("%s: %.4g against %.4g", text, a, b))
		}
	}
	return failed, skipped
}
