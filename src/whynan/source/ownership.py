from enum import IntEnum
import sysconfig, os
class Owner(IntEnum):
    USER=0; LIBRARY=1; TORCH=2; STDLIB=3; WHYNAN=4
_here=os.path.dirname(os.path.dirname(__file__))
_std=sysconfig.get_path('stdlib')
def owner_of(f):
    if f.startswith(_here): return Owner.WHYNAN
    if '/site-packages/torch/' in f: return Owner.TORCH
    if 'site-packages' in f: return Owner.LIBRARY
    if f.startswith(_std) or f.startswith('<frozen'): return Owner.STDLIB
    return Owner.USER
