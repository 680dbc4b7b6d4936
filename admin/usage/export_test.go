package usage

// Size returns the memory that all apps take, as h counts it.
func (h *History) Size() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.apps {
		n += a.size()
	}
	return n
}
