package quorum

// A field is the finite field of q = p^k elements (Galois, 1830; any book on
// finite fields, such as Lidl and Niederreiter, 1983, chapter 2). For each prime
// power there is exactly one.
//
// Its elements are the polynomials of degree below k over the integers modulo p,
// and element c(0) + c(1)*x + ... is numbered c(0) + c(1)*p + c(2)*p^2 + ..., so
// that 0 and 1 are the zero and the one. Sums are taken by coefficient. Products
// are taken modulo an irreducible polynomial of degree k: the first one, in order
// of its number, that no polynomial of degree 1 to k/2 divides.
type field struct {
	q, p, k int
	modulus []int // coefficients from x^0 to x^k, the last being 1
	table   []int // a*b is table[a*q+b]
}

// newField returns the field of q elements, and false if q is no prime power.
func newField(q int) (*field, bool) {
	p, k := primePower(q)
	if k == 0 {
		return nil, false
	}
	f := &field{q: q, p: p, k: k}
	for m := q; ; m++ { // x^k, x^k + 1, ...
		f.modulus = f.polynomial(m)
		if f.irreducible() {
			break
		}
	}
	f.table = make([]int, q*q)
	for a := range q {
		for b := range a + 1 {
			f.table[a*q+b] = f.product(a, b)
			f.table[b*q+a] = f.table[a*q+b]
		}
	}
	return f, true
}

// primePower returns p and k with q = p^k, or k = 0 if there are none.
func primePower(q int) (p, k int) {
	if q < 2 {
		return 0, 0
	}
	for p = 2; p*p <= q && q%p != 0; p++ {
	}
	if q%p != 0 {
		return q, 1
	}
	for ; q%p == 0; q /= p {
		k++
	}
	if q > 1 {
		return 0, 0
	}
	return p, k
}

// polynomial returns the coefficients that a number stands for.
func (f *field) polynomial(number int) []int {
	var c []int
	for ; number > 0; number /= f.p {
		c = append(c, number%f.p)
	}
	return c
}

func (f *field) number(c []int) int {
	n := 0
	for i := len(c) - 1; i >= 0; i-- {
		n = n*f.p + c[i]
	}
	return n
}

func (f *field) irreducible() bool {
	most := 1 // one more than the number of any polynomial of degree k/2
	for range f.k/2 + 1 {
		most *= f.p
	}
	for d := f.p; d < most; d++ {
		if f.number(f.remainder(f.modulus, f.polynomial(d))) == 0 {
			return false
		}
	}
	return true
}

// remainder divides a by b, whose leading coefficient need not be 1.
func (f *field) remainder(a, b []int) []int {
	r := append([]int(nil), a...)
	lead := 1 // the inverse of b's leading coefficient
	for lead*b[len(b)-1]%f.p != 1 {
		lead++
	}
	for i := len(r) - 1; i >= len(b)-1; i-- {
		times := r[i] * lead % f.p
		for j := range b {
			at := i - len(b) + 1 + j
			r[at] = (r[at] + (f.p-times)*b[j]) % f.p
		}
	}
	return r[:min(len(r), len(b)-1)]
}

func (f *field) add(a, b int) int {
	sum, place := 0, 1
	for ; a > 0 || b > 0; a, b = a/f.p, b/f.p {
		sum += (a%f.p + b%f.p) % f.p * place
		place *= f.p
	}
	return sum
}

func (f *field) negative(a int) int {
	sum, place := 0, 1
	for ; a > 0; a /= f.p {
		sum += (f.p - a%f.p) % f.p * place
		place *= f.p
	}
	return sum
}

func (f *field) multiply(a, b int) int { return f.table[a*f.q+b] }

func (f *field) product(a, b int) int {
	x, y := f.polynomial(a), f.polynomial(b)
	product := make([]int, len(x)+len(y))
	for i, c := range x {
		for j, d := range y {
			product[i+j] = (product[i+j] + c*d) % f.p
		}
	}
	return f.number(f.remainder(product, f.modulus))
}
