from whynan.records import Site
import itertools, linecache
def resolve(code, lasti, *, line=None):
    p=next(itertools.islice(code.co_positions(), lasti//2, None))
    l=linecache.getline(code.co_filename,p[0])
    return Site(file=code.co_filename,line=p[0],column=p[2]+1,end_line=p[1],end_column=p[3]+1,code=l[p[2]:p[3]] if p[0]==p[1] else l.strip(),function=code.co_qualname)
