def write_page(out, path): pass
def write_plot(out, path): pass
