package quorum

// A field is the finite field of q = p^k elements (Lidl and Niederreiter, "Finite Fields",
// 1983, chapter 2).
//
// Its elements are the polynomials of degree below k over the integers modulo p,
// and element c(0) + c(1)*x + ... is numbered c(0) + c(1)*p + c(2)*p^2 + ... Products are
// taken modulo a primitive polynomial x^k + ..., one for which the powers of x are all
// elements but 0. So a product is a sum of logarithms.
type field struct {
	q, p int
	exp  []int // the powers of x, from x^0 to x^(q-2)
	log  []int // exp[log[a]] is a; log[0] means nothing
}

// newField returns the field of q elements, and false if q is no prime power.
func newField(q int) (*field, bool) {
	p, rest := 2, q
	for p < q && q%p != 0 {
		p++
	}
	for rest >= p && rest%p == 0 {
		rest /= p
	}
	if q < 2 || rest != 1 {
		return nil, false
	}
	f := &field{q: q, p: p, log: make([]int, q)}
	for tail := 1; len(f.exp) != q-1; tail++ { // x^k - tail
		f.exp = f.exp[:0]
		for a := 1; len(f.exp) == 0 || a != 1 && len(f.exp) < q; {
			f.log[a] = len(f.exp)
			f.exp = append(f.exp, a)
			high := a / (q / p) // the coefficient of x^(k-1)
			a = a % (q / p) * p
			for range high {
				a = f.add(a, tail)
			}
		}
	}
	return f, true
}

func (f *field) add(a, b int) int {
	sum, place := 0, 1
	for ; a > 0 || b > 0; a, b = a/f.p, b/f.p {
		sum += (a%f.p + b%f.p) % f.p * place
		place *= f.p
	}
	return sum
}

func (f *field) multiply(a, b int) int {
	if a == 0 || b == 0 {
		return 0
	}
	return f.exp[(f.log[a]+f.log[b])%(f.q-1)]
}
